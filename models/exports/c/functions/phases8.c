#include "circle.c"

/* As phases, with angles of 8 bits. */
static void phases8(float *restrict v, const signed char *restrict a, int size)
{
    for (int j = 0; j < size; j++) {
        const float re = v[j], im = v[size + j];
        float c, s;
        circle(a[j] * 256, &c, &s);
        v[j] = re * c - im * s;
        v[size + j] = re * s + im * c;
    }
}
