#include "circle.c"

#include "turn.c"

/* As turn, with angles of 16 bits. */
static void turn16(float *restrict up, float *restrict down, const int16_t *restrict a, int count)
{
    float c[16], s[16];
    for (int j = 0; j < count; j += 16) {
        const int some = count - j < 16 ? count - j : 16;
        for (int l = 0; l < some; l++) {
            circle(a[j + l], c + l, s + l);
        }
        turn(up + j, down - j, c, s, some);
    }
}
