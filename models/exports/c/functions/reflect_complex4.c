/* As reflect_complex8, with integers of 4 bits; see accumulate4. */
static void reflect_complex4(float *restrict v, const unsigned char *restrict q, float s, int size)
{
    float re = 0.0f, im = 0.0f;
    for (int j = 0; j < size; j++) {
        const float a = (float)((q[j] & 15) - 8), b = (float)((q[j] >> 4) - 8);
        re += a * v[j] + b * v[size + j];
        im += a * v[size + j] - b * v[j];
    }
    re *= s;
    im *= s;
    for (int j = 0; j < size; j++) {
        const float a = (float)((q[j] & 15) - 8), b = (float)((q[j] >> 4) - 8);
        v[j] -= re * a - im * b;
        v[size + j] -= re * b + im * a;
    }
}
