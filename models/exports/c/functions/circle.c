/* Cosine c and sine s of 2 pi a / 65536: by polynomials within an eighth of a turn to both sides of
   the nearest quarter, at most 1e-7 off. */
static void circle(int a, float *restrict c, float *restrict s)
{
    const int from = a + 40960, quarter = from >> 14, swapped = quarter & 1;
    const float x = (float)((from & 16383) - 8192) * 9.58737992e-5f, z = x * x;
    float even = 2.44331571e-5f, odd = -1.95152959e-4f;
    even = even * z - 1.38873162e-3f;
    even = even * z + 4.16666457e-2f;
    even = even * z - 0.5f;
    even = even * z + 1.0f;
    odd = odd * z + 8.33216087e-3f;
    odd = odd * z - 1.66666546e-1f;
    odd = (odd * z + 1.0f) * x;
    /* Quarters begin half a turn back, where both are negative. */
    *c = (swapped ? odd : even) * (float)(((quarter + 1) & 2) - 1);
    *s = (swapped ? even : odd) * (float)((quarter & 2) - 1);
}
