#include "turn.c"

/* `count` stages of plane rotations, from stage `first` on with `step` between them. Stage k pairs
   the coordinates whose places add up to k or k + odd, where odd is the larger odd number up to
   size; of an even size the last coordinate takes the one that is left. Cosines and sines lie in
   this order. */
static void rotations(float *restrict v, const float *restrict c, const float *restrict s, int size, int first, int step, int count)
{
    const int odd = size % 2 == 0 ? size - 1 : size;
    for (int n = 0, k = first; n < count; n++, k += step) {
        const int below = (k + 1) / 2, above = (odd - 1 - k) / 2;
        turn(v, v + k, c, s, below);
        turn(v + k + 1, v + odd - 1, c + below, s + below, above);
        if (size % 2 == 0) {
            const int left = k % 2 == 0 ? k / 2 : (k + odd) / 2;
            turn(v + left, v + size - 1, c + below + above, s + below + above, 1);
        }
        c += size / 2;
        s += size / 2;
    }
}
