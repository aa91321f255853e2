#include "squash.c"

/* 1 / (1 + exp(-x)) by way of tanh. */
static float gate(float x)
{
    return 0.5f * squash(0.5f * x) + 0.5f;
}
