/* Complex numbers v times d, number by number; both lie as (re | im). */
static void phases(float *restrict v, const float *restrict d, int size)
{
    for (int j = 0; j < size; j++) {
        const float re = v[j], im = v[size + j];
        v[j] = re * d[j] - im * d[size + j];
        v[size + j] = re * d[size + j] + im * d[j];
    }
}
