/* y += Q x with whole numbers Q of 4 bits, column after column. A byte holds q + 8 of a row of the
   first half in its lower four bits, and of the same row of the second half in its upper ones. */
static void accumulate4(float *restrict y, const float *restrict x, const unsigned char *restrict w, int rows, int columns)
{
    const int half = (rows + 1) / 2, rest = rows - half;
    for (int i = 0; i < columns; i++) {
        const float a = x[i];
        for (int j = 0; j < half; j++) {
            y[j] += a * (float)((w[j] & 15) - 8);
        }
        for (int j = 0; j < rest; j++) {
            y[half + j] += a * (float)((w[j] >> 4) - 8);
        }
        w += half;
    }
}
