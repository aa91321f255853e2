// LANES rows of LANES columns at a time: rows of a batch as vectors whose lanes are the rows, and back.
#pragma once
#include "vector.h"

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
