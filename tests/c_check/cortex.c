/* What a Cortex-M4 needs before newlib's start, and a counter of instructions: in qemu with
   `-icount shift=0` an instruction takes a nanosecond, and SysTick counts every 40. */
#include <stdint.h>

extern uint32_t loaded, data_begin, data_end, stack_top;
extern void _start(void);
void reset(void);
uint32_t ticks(void);

__attribute__((section(".vectors"), used)) static const struct {
    uint32_t *stack;
    void (*start)(void);
} vectors = {&stack_top, reset};

#define REGISTER(address) (*(volatile uint32_t *)(uintptr_t)(address))

__attribute__((noreturn)) void reset(void)
{
    const uint32_t *from = &loaded;
    for (uint32_t *to = &data_begin; to < &data_end; to++) {
        *to = *from++;
    }
    REGISTER(0xE000ED88) |= UINT32_C(0xF) << 20; /* the floating point unit */
    REGISTER(0xE000E014) = UINT32_C(0xFFFFFF);
    REGISTER(0xE000E018) = 0;
    REGISTER(0xE000E010) = 5;
    _start();
    for (;;) {
    }
}

/* Since the start, modulo 2^24. */
uint32_t ticks(void)
{
    return UINT32_C(0xFFFFFF) - REGISTER(0xE000E018);
}
