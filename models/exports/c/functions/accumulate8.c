#include "scaled.c"

/* y += Q diag(scale) x with the integers Q of 8 bits, in the order of accumulate; column after column,
   since compilers turn long runs of bytes alone into numbers several at a time. Where columns have
   no scales, scale is 0. */
static void accumulate8(float *restrict y, const float *restrict x, const signed char *restrict w, const uint16_t *restrict scale, int rows, int columns)
{
    int i = 0;
    for (; i + 4 <= columns; i += 4) {
        const float a = scaled(x, scale, i), b = scaled(x, scale, i + 1);
        const float c = scaled(x, scale, i + 2), d = scaled(x, scale, i + 3);
        for (int j = 0; j < rows; j++) {
            float sum = y[j];
            sum += a * (float)w[j];
            sum += b * (float)w[rows + j];
            sum += c * (float)w[2 * rows + j];
            sum += d * (float)w[3 * rows + j];
            y[j] = sum;
        }
        w += 4 * rows;
    }
    for (; i < columns; i++) {
        const float a = scaled(x, scale, i);
        for (int j = 0; j < rows; j++) {
            y[j] += a * (float)w[j];
        }
        w += rows;
    }
}
