// What the machine can do at most: multiply-adds in the kernels' own vectors and register tile, the
// kernels' own tanh, and copies of memory that no cache holds. Prints GFLOP/s, 1e9 tanh/s, and with
// an argument GB/s as well.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "vector.h"

static double seconds() {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

static double multiply_adds(float *sink) {
  constexpr int SUMS = 2 * TILE_ROWS;
  constexpr long REPEATS = 2000000;
  Vec sums[SUMS], scale = fill(0.999f), shift = fill(1e-6f);
  for (int i = 0; i < SUMS; i++) sums[i] = fill(i * 1e-3f);
  // The compiler is not to know what it starts from.
  asm volatile("" ::"m"(sums));
  double best = 0;
  for (int round = 0; round < 9; round++) {
    double begun = seconds();
    for (long k = 0; k < REPEATS; k++) {
#pragma GCC unroll 32
      for (int i = 0; i < SUMS; i++) sums[i] = sums[i] * scale + shift;
    }
    double rate = REPEATS * (2.0 * SUMS * LANES) / (seconds() - begun) / 1e9;
    if (rate > best) best = rate;
  }
  for (int i = 0; i < SUMS; i++) *sink += sums[i][0];
  return best;
}

static double tanhs(float *sink) {
  constexpr int COUNT = 1024;
  constexpr long REPEATS = 20000;
  static float values[COUNT];
  for (int i = 0; i < COUNT; i++) values[i] = 0.004f * (i - COUNT / 2);
  double best = 0;
  for (int round = 0; round < 5; round++) {
    double begun = seconds();
    for (long k = 0; k < REPEATS; k++) {
      for (int i = 0; i < COUNT; i += LANES) store(values + i, tanh_of(load(values + i)));
      // Each pass is to be made, whatever the compiler thinks of the one before.
      asm volatile("" ::: "memory");
    }
    double rate = (double)REPEATS * COUNT / (seconds() - begun) / 1e9;
    if (rate > best) best = rate;
  }
  *sink += values[COUNT / 3];
  return best;
}

static double copies(float *sink) {
  constexpr size_t BYTES = 256 << 20;
  char *from = (char *)malloc(BYTES), *to = (char *)malloc(BYTES);
  if (!from || !to) return 0;
  memset(from, 1, BYTES);
  memset(to, 0, BYTES);
  double best = 0;
  for (int round = 0; round < 5; round++) {
    double begun = seconds();
    memcpy(to, from, BYTES);
    double rate = 2.0 * BYTES / (seconds() - begun) / 1e9;
    if (rate > best) best = rate;
  }
  *sink += to[BYTES / 3];
  free(from);
  free(to);
  return best;
}

int main(int count, char **) {
  float sink = 0;
  double flops = multiply_adds(&sink), evaluations = tanhs(&sink);
  double bytes = count > 1 ? copies(&sink) : 0;
  printf("%.3f %.3f %.3f\n", flops, evaluations, bytes);
  return sink == 12345.f;
}
