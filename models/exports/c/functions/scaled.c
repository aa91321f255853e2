#include "wide.c"

/* x[i] times the scale of column i, where columns have scales. */
static float scaled(const float *restrict x, const uint16_t *restrict s, int i)
{
    return s == 0 ? x[i] : wide(s[i]) * x[i];
}
