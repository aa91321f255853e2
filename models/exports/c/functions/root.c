/* The square root by Heron's rule, from a guess that halves the exponent. Exact but for the last
   digit from 1e-37 on, below it less than 1e-18. */
static float root(float x)
{
    union { float number; uint32_t digits; } guess;
    float y;
    guess.number = x;
    guess.digits = (guess.digits >> 1) + UINT32_C(0x1fbd1df5);
    y = guess.number;
    y = 0.5f * (y + x / y);
    y = 0.5f * (y + x / y);
    y = 0.5f * (y + x / y);
    return x > 0.0f ? y : x;
}
