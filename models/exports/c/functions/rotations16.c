#include "turn16.c"

/* As rotations, with angles of 16 bits. */
static void rotations16(float *restrict v, const int16_t *restrict a, int size, int first, int step, int count)
{
    const int odd = size % 2 == 0 ? size - 1 : size;
    for (int n = 0, k = first; n < count; n++, k += step) {
        const int below = (k + 1) / 2, above = (odd - 1 - k) / 2;
        turn16(v, v + k, a, below);
        turn16(v + k + 1, v + odd - 1, a + below, above);
        if (size % 2 == 0) {
            const int left = k % 2 == 0 ? k / 2 : (k + odd) / 2;
            turn16(v + left, v + size - 1, a + below + above, 1);
        }
        a += size / 2;
    }
}
