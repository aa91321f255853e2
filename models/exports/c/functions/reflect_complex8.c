/* v -= s q (q^* v) for complex vectors (re | im) of integers q of 8 bits, s = 2 / |q|^2. */
static void reflect_complex8(float *restrict v, const signed char *restrict q, float s, int size)
{
    float re = 0.0f, im = 0.0f;
    for (int j = 0; j < size; j++) {
        const float a = (float)q[j], b = (float)q[size + j];
        re += a * v[j] + b * v[size + j];
        im += a * v[size + j] - b * v[j];
    }
    re *= s;
    im *= s;
    for (int j = 0; j < size; j++) {
        const float a = (float)q[j], b = (float)q[size + j];
        v[j] -= re * a - im * b;
        v[size + j] -= re * b + im * a;
    }
}
