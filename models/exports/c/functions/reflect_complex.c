/* v -= z (z^* v) for complex vectors (re | im), z of length sqrt(2). */
static void reflect_complex(float *restrict v, const float *restrict z, int size)
{
    float re = 0.0f, im = 0.0f;
    for (int j = 0; j < size; j++) {
        re += z[j] * v[j] + z[size + j] * v[size + j];
        im += z[j] * v[size + j] - z[size + j] * v[j];
    }
    for (int j = 0; j < size; j++) {
        v[j] -= re * z[j] - im * z[size + j];
        v[size + j] -= re * z[size + j] + im * z[j];
    }
}
