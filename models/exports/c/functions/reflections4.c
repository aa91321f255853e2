/* As reflections8, with integers of 4 bits; see accumulate4. */
static void reflections4(float *restrict v, const unsigned char *restrict q, const float *restrict s, int size, int first, int step, int count)
{
    for (int k = 0; k < count; k++) {
        const int length = size - first, half = (length + 1) / 2, rest = length - half;
        float *restrict const u = v + first;
        float dot = 0.0f;
        for (int j = 0; j < half; j++) {
            dot += (float)((q[j] & 15) - 8) * u[j];
        }
        for (int j = 0; j < rest; j++) {
            dot += (float)((q[j] >> 4) - 8) * u[half + j];
        }
        dot *= s[k];
        for (int j = 0; j < half; j++) {
            u[j] -= dot * (float)((q[j] & 15) - 8);
        }
        for (int j = 0; j < rest; j++) {
            u[half + j] -= dot * (float)((q[j] >> 4) - 8);
        }
        q += half;
        first += step;
    }
}
