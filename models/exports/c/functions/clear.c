static void clear(float *restrict y, int count)
{
    for (int j = 0; j < count; j++) {
        y[j] = 0.0f;
    }
}
