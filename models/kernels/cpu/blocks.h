// LANES rows of LANES columns at a time: rows of a batch as vectors whose lanes are the rows, and back.
#pragma once
#include <utility>

#include "vector.h"

// In every group of 2 W lanes: the lower W of both vectors, or the upper ones.
template <int W, bool UPPER> constexpr int exchanged_lane(int i) {
  return i & W ? LANES + i - (UPPER ? 0 : W) : i + (UPPER ? W : 0);
}
template <int W, bool UPPER, int... I>
static inline Vec exchanged(Vec a, Vec b, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(a, b, exchanged_lane<W, UPPER>(I)...);
#else
  return __builtin_shuffle(a, b, (Bits){exchanged_lane<W, UPPER>(I)...});
#endif
}

template <int W> static inline void transpose_in_groups(Vec *x) {
  using Lanes = std::make_integer_sequence<int, LANES>;
#pragma GCC unroll 16
  for (int i = 0; i < LANES; i++) {
    if (i & W) continue;
    const Vec a = x[i], b = x[i + W];
    x[i] = exchanged<W, false>(a, b, Lanes{});
    x[i + W] = exchanged<W, true>(a, b, Lanes{});
  }
  if constexpr (W > 1) transpose_in_groups<W / 2>(x);
}
static inline void transpose(Vec *x) { transpose_in_groups<LANES / 2>(x); }

// Vector j of `block` has column j of the rows, one in each lane; 0 where there is none.
static inline void read_block(const float *from, int64_t row, int rows, int64_t columns, Vec *block) {
  Vec x[LANES];
  if (rows == LANES && columns >= LANES) {
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++) x[r] = load(from + r * row);
  } else {
    for (int r = 0; r < LANES; r++) x[r] = r < rows ? load_some(from + r * row, columns) : Vec{};
  }
  transpose(x);
#pragma GCC unroll 16
  for (int r = 0; r < LANES; r++) block[r] = x[r];
}
static inline void write_block(const Vec *block, float *to, int64_t row, int rows, int64_t columns) {
  Vec x[LANES];
#pragma GCC unroll 16
  for (int r = 0; r < LANES; r++) x[r] = block[r];
  transpose(x);
  if (rows == LANES && columns >= LANES) {
#pragma GCC unroll 16
    for (int r = 0; r < LANES; r++) store(to + r * row, x[r]);
  } else {
    for (int r = 0; r < rows; r++) store_some(to + r * row, x[r], columns);
  }
}
