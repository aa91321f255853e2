#include "wide.c"

/* y *= x, number by number, with x of 16 bits */
static void stretch16(float *restrict y, const uint16_t *restrict x, int count)
{
    for (int j = 0; j < count; j++) {
        y[j] *= wide(x[j]);
    }
}
