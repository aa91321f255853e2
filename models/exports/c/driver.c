/* Answers what it is sent: samples in, answers out. NAME is a file of models.exports.c.

   In: how many samples; of each its steps, how many of them are run at a time (0: all of them;
   -1: by NAME_step) and how many numbers follow; then these. Out: the answers' numbers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "NAME.h"

static void take(void *to, size_t size, size_t count)
{
    if (fread(to, size, count, stdin) != count) {
        exit(2);
    }
}

static void give(const float *y, size_t count)
{
    if (fwrite(y, sizeof *y, count, stdout) != count) {
        exit(3);
    }
}

int main(void)
{
    NAME_state state;
    int32_t samples, shape[3];
    take(&samples, sizeof samples, 1);
    while (samples-- > 0) {
        READS *x;
        float *y;
        int32_t done = 0;
        take(shape, sizeof *shape, 3);
        x = malloc((size_t)shape[2] * sizeof *x);
        y = malloc((EVERY ? (size_t)shape[0] : 1) * NAME_OUTPUTS * sizeof *y);
        if (x == NULL || y == NULL) {
            exit(4);
        }
        take(x, sizeof *x, (size_t)shape[2]);
        NAME_reset(&state);
        while (done < shape[0]) {
            const READS *const from = x + done * NAME_STRIDE;
            float *const to = EVERY ? y + done * NAME_OUTPUTS : y;
            int32_t steps = shape[0] - done;
            if (shape[1] < 0) {
                steps = 1;
                STEP
            } else {
                if (shape[1] > 0 && shape[1] < steps) {
                    steps = shape[1];
                }
                RUN
            }
            NAME_answer(&state, to + (EVERY ? (steps - 1) * NAME_OUTPUTS : 0));
            done += steps;
        }
        give(y, (EVERY ? (size_t)shape[0] : 1) * NAME_OUTPUTS);
        free(x);
        free(y);
    }
    return 0;
}
