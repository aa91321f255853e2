/* v -= z (z . v) for `count` vectors z of length sqrt(2), one after the other: reflectors. The first
   one has its first nonzero number at place `first`, each later one `step` places on; only those
   from there to `size` are kept. Eight sums in a fixed order make up a dot product. */
static void reflections(float *restrict v, const float *restrict z, int size, int first, int step, int count)
{
    for (int k = 0; k < count; k++) {
        float sums[8] = {0.0f}, dot = 0.0f;
        const int length = size - first;
        float *restrict const u = v + first;
        int j = 0;
        for (; j + 8 <= length; j += 8) {
            for (int l = 0; l < 8; l++) {
                sums[l] += z[j + l] * u[j + l];
            }
        }
        for (; j < length; j++) {
            dot += z[j] * u[j];
        }
        for (int l = 0; l < 8; l++) {
            dot += sums[l];
        }
        for (j = 0; j < length; j++) {
            u[j] -= dot * z[j];
        }
        z += length;
        first += step;
    }
}
