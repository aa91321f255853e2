/* Plane rotations of `count` pairs of coordinates, which lie upwards and downwards from two places. */
static void turn(float *restrict up, float *restrict down, const float *restrict c, const float *restrict s, int count)
{
    for (int j = 0; j < count; j++) {
        const float one = up[j], two = down[-j];
        up[j] = c[j] * one + s[j] * two;
        down[-j] = c[j] * two - s[j] * one;
    }
}
