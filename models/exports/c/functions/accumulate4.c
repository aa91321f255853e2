#include "scaled.c"

/* As accumulate8, with integers of 4 bits. A byte holds q + 8 of a row of the first half in its lower
   four bits, and of the same row of the second half in its upper ones. */
static void accumulate4(float *restrict y, const float *restrict x, const unsigned char *restrict w, const uint16_t *restrict scale, int rows, int columns)
{
    const int half = (rows + 1) / 2, rest = rows - half;
    int i = 0;
    for (; i + 4 <= columns; i += 4) {
        const float a = scaled(x, scale, i), b = scaled(x, scale, i + 1);
        const float c = scaled(x, scale, i + 2), d = scaled(x, scale, i + 3);
        for (int j = 0; j < half; j++) {
            const int p = w[j], q = w[half + j], r = w[2 * half + j], s = w[3 * half + j];
            float sum = y[j];
            sum += a * (float)((p & 15) - 8);
            sum += b * (float)((q & 15) - 8);
            sum += c * (float)((r & 15) - 8);
            sum += d * (float)((s & 15) - 8);
            y[j] = sum;
            if (j < rest) {
                sum = y[half + j];
                sum += a * (float)((p >> 4) - 8);
                sum += b * (float)((q >> 4) - 8);
                sum += c * (float)((r >> 4) - 8);
                sum += d * (float)((s >> 4) - 8);
                y[half + j] = sum;
            }
        }
        w += 4 * half;
    }
    for (; i < columns; i++) {
        const float a = scaled(x, scale, i);
        for (int j = 0; j < half; j++) {
            y[j] += a * (float)((w[j] & 15) - 8);
        }
        for (int j = 0; j < rest; j++) {
            y[half + j] += a * (float)((w[j] >> 4) - 8);
        }
        w += half;
    }
}
