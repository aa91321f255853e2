/* y += Q x with the whole numbers Q of 8 bits, in the order of accumulate. */
static void accumulate8(float *restrict y, const float *restrict x, const signed char *restrict w, int rows, int columns)
{
    int i = 0;
    for (; i + 4 <= columns; i += 4) {
        const float a = x[i], b = x[i + 1], c = x[i + 2], d = x[i + 3];
        int j = 0, rest;
        for (; j + 8 <= rows; j += 8) {
            for (int l = 0; l < 8; l++) {
                float sum = y[j + l];
                sum += a * (float)w[l];
                sum += b * (float)w[8 + l];
                sum += c * (float)w[16 + l];
                sum += d * (float)w[24 + l];
                y[j + l] = sum;
            }
            w += 32;
        }
        rest = rows - j;
        for (int l = 0; l < rest; l++) {
            float sum = y[j + l];
            sum += a * (float)w[l];
            sum += b * (float)w[rest + l];
            sum += c * (float)w[2 * rest + l];
            sum += d * (float)w[3 * rest + l];
            y[j + l] = sum;
        }
        w += 4 * rest;
    }
    for (; i < columns; i++) {
        const float a = x[i];
        for (int j = 0; j < rows; j++) {
            y[j] += a * (float)w[j];
        }
        w += rows;
    }
}
