/* As reflections, with integers q of 8 bits: v -= s q (q . v), s = 2 / |q|^2. */
static void reflections8(float *restrict v, const signed char *restrict q, const float *restrict s, int size, int first, int step, int count)
{
    for (int k = 0; k < count; k++) {
        float sums[8] = {0.0f}, dot = 0.0f;
        const int length = size - first;
        float *restrict const u = v + first;
        int j = 0;
        for (; j + 8 <= length; j += 8) {
            for (int l = 0; l < 8; l++) {
                sums[l] += (float)q[j + l] * u[j + l];
            }
        }
        for (; j < length; j++) {
            dot += (float)q[j] * u[j];
        }
        for (int l = 0; l < 8; l++) {
            dot += sums[l];
        }
        dot *= s[k];
        for (j = 0; j < length; j++) {
            u[j] -= dot * (float)q[j];
        }
        q += length;
        first += step;
    }
}
