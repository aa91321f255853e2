static void copy(float *restrict y, const float *restrict x, int count)
{
    for (int j = 0; j < count; j++) {
        y[j] = x[j];
    }
}
