/* y += W x. The sums of all rows run side by side, each in the order of x, whatever a compiler makes
   of it. W lies in groups of four columns, and a group in blocks of eight rows, column after column:
   it is read from one end to the other, and y is loaded once for four columns. Columns that fill no
   group stand behind, one after the other. */
static void accumulate(float *restrict y, const float *restrict x, const float *restrict w, int rows, int columns)
{
    int i = 0;
    for (; i + 4 <= columns; i += 4) {
        const float a = x[i], b = x[i + 1], c = x[i + 2], d = x[i + 3];
        int j = 0, rest;
        for (; j + 8 <= rows; j += 8) {
            for (int l = 0; l < 8; l++) {
                float sum = y[j + l];
                sum += a * w[l];
                sum += b * w[8 + l];
                sum += c * w[16 + l];
                sum += d * w[24 + l];
                y[j + l] = sum;
            }
            w += 32;
        }
        rest = rows - j;
        for (int l = 0; l < rest; l++) {
            float sum = y[j + l];
            sum += a * w[l];
            sum += b * w[rest + l];
            sum += c * w[2 * rest + l];
            sum += d * w[3 * rest + l];
            y[j + l] = sum;
        }
        w += 4 * rest;
    }
    for (; i < columns; i++) {
        const float a = x[i];
        for (int j = 0; j < rows; j++) {
            y[j] += a * w[j];
        }
        w += rows;
    }
}
