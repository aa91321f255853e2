/* The number whose upper 16 bits these are: of type bfloat16. */
static float wide(uint16_t upper)
{
    union { uint32_t digits; float number; } it;
    it.digits = (uint32_t)upper << 16;
    return it.number;
}
