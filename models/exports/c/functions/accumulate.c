/* y += W x. W lies column after column: the sums of all rows run side by side, each in the order of
   x, whatever a compiler makes of it. Of four columns at a time, so that y is loaded less often. */
static void accumulate(float *restrict y, const float *restrict x, const float *restrict w, int rows, int columns)
{
    int i = 0;
    for (; i + 4 <= columns; i += 4) {
        const float a = x[i], b = x[i + 1], c = x[i + 2], d = x[i + 3];
        for (int j = 0; j < rows; j++) {
            float sum = y[j];
            sum += a * w[j];
            sum += b * w[rows + j];
            sum += c * w[2 * rows + j];
            sum += d * w[3 * rows + j];
            y[j] = sum;
        }
        w += 4 * rows;
    }
    for (; i < columns; i++) {
        const float a = x[i];
        for (int j = 0; j < rows; j++) {
            y[j] += a * w[j];
        }
        w += rows;
    }
}
