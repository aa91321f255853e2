/* Prints how many instructions a step of NAME takes, on average over STEPS steps; with cortex.c. */
#include <stdint.h>
#include <stdio.h>

#include "NAME.h"

uint32_t ticks(void);

static READS x[NUMBERS];

int main(void)
{
    NAME_state state;
    uint32_t begun, taken;
    for (int j = 0; j < NUMBERS; j++) {
        x[j] = (READS)(j % 3);
    }
    NAME_reset(&state);
    begun = ticks();
    CALL
    taken = (ticks() - begun) & UINT32_C(0xFFFFFF);
    printf("%lu\n", (unsigned long)(40 * taken / STEPS));
    return 0;
}
