#include "circle.c"

/* As phases, with angles of 16 bits. */
static void phases16(float *restrict v, const int16_t *restrict a, int size)
{
    for (int j = 0; j < size; j++) {
        const float re = v[j], im = v[size + j];
        float c, s;
        circle(a[j], &c, &s);
        v[j] = re * c - im * s;
        v[size + j] = re * s + im * c;
    }
}
