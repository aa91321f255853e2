/* y += d * x, number by number: a diagonal matrix */
static void add_product(float *restrict y, const float *restrict d, const float *restrict x, int count)
{
    for (int j = 0; j < count; j++) {
        y[j] += d[j] * x[j];
    }
}
