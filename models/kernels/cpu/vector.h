// Vectors of floats by the compiler's vector extensions, and the functions that networks need of them.
#pragma once
#include <stdint.h>
#include <string.h>

#include <utility>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

// Lanes of a vector, and the rows of a register tile: as many sums as the registers hold, beside
// two loaded vectors and one broadcast.
#if defined(__AVX512F__)
constexpr int LANES = 16, TILE_ROWS = 12;
#elif defined(__AVX2__)
constexpr int LANES = 8, TILE_ROWS = 6;
#else
constexpr int LANES = 4, TILE_ROWS = 8;
#endif

typedef float Vec __attribute__((vector_size(LANES * 4), may_alias));
typedef int32_t Bits __attribute__((vector_size(LANES * 4), may_alias));
// A vector in memory, anywhere. Clang forgets what a type says of alignment where the type is an
// argument of a template, so that this one is for loading and storing alone.
typedef float Anywhere __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static inline Vec load(const float *p) { return *(const Anywhere *)p; }
static inline void store(float *p, Vec v) { *(Anywhere *)p = v; }
static inline Vec fill(float x) { return x - (Vec){}; }

// The first `count` lanes from memory, 0 in the others; nothing behind them is read or written.
static inline Vec load_some(const float *p, int64_t count) {
  if (count >= LANES) return load(p);
  Vec v = {};
  if (count > 0) memcpy(&v, p, count * 4);
  return v;
}
static inline void store_some(float *p, Vec v, int64_t count) {
  if (count >= LANES) store(p, v);
  else if (count > 0) memcpy(p, &v, count * 4);
}

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
// The square of LANES vectors, turned over its diagonal.
static inline void transpose(Vec *x) { transpose_in_groups<LANES / 2>(x); }

// to [columns, rows] = sign * from^T for up to LANES rows and columns; `to` has whole vectors where
// `whole` says so, with zeros behind the rows.
static inline void transpose_square(int64_t rows, int64_t columns, const float *from, int64_t from_row, float *to,
                               int64_t to_row, bool whole, float sign = 1) {
  Vec square[LANES];
  if (rows >= LANES && columns >= LANES) {
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) square[i] = load(from + i * from_row) * sign;
    transpose(square);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) store(to + i * to_row, square[i]);
    return;
  }
  for (int i = 0; i < LANES; i++)
    square[i] = i < rows ? load_some(from + i * from_row, columns) * sign : (Vec){};
  transpose(square);
  for (int i = 0; i < LANES && i < columns; i++) store_some(to + i * to_row, square[i], whole ? LANES : rows);
}

// Asks for memory that is read soon. A tile's rows of one step are neighbours, those of the step
// before are far away, which is no pattern that a processor sees by itself.
static inline void prefetch(const float *p, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(p + i);
}
// The same for memory that is written soon: a store to what no cache holds waits for it to come.
static inline void prefetch_to_write(const float *p, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) __builtin_prefetch(p + i, 1);
}

static inline Vec sqrt_of(Vec x) {
  float each[LANES];
  memcpy(each, &x, sizeof x);
  for (int i = 0; i < LANES; i++) each[i] = __builtin_sqrtf(each[i]);
  memcpy(&x, each, sizeof x);
  return x;
}

// The sum over all lanes, by halves.
static inline float sum_of(Vec v) {
  typedef float Half __attribute__((vector_size(LANES * 2), aligned(4), may_alias));
  Half half = *(Half *)&v + *((Half *)&v + 1);
  float sums[LANES / 2], total = 0;
  memcpy(sums, &half, sizeof half);
  for (int width = LANES / 4; width > 1; width /= 2)
    for (int i = 0; i < width; i++) sums[i] += sums[i + width];
  for (int i = 0; i < 2 && i < LANES / 2; i++) total += sums[i];
  return total;
}

// While it lives, what is too small for full precision, below 1.2e-38, counts as 0 in this thread.
// Gradients that vanish over many steps are such numbers, which take x86 processors up to ten times
// as long; others take no longer for them.
struct TinyIsZero {
#if defined(__SSE__)
  const unsigned before = _mm_getcsr();
  TinyIsZero() { _mm_setcsr(before | 0x8040); }  // results, operands
  ~TinyIsZero() { _mm_setcsr(before); }
#endif
};

// x P(x^2) / Q(x^2), fitted to tanh on [-8, 8] with a relative error of 6e-9 before rounding, of
// 4e-7 in single precision; beyond 8, tanh is 1 to rounding.
static inline Vec tanh_of(Vec x) {
  // In this form NaN passes, here and wherever it is used.
  x = x > 8.f ? fill(8.f) : x;
  x = x < -8.f ? fill(-8.f) : x;
  Vec y = x * x;
  Vec p = fill(1.523060944e-08f);
  p = p * y + 2.189479901e-05f;
  p = p * y + 3.571606339e-03f;
  p = p * y + 1.344450499e-01f;
  p = p * y + 9.999999936e-01f;
  Vec q = fill(8.522524625e-07f);
  q = q * y + 3.411305617e-04f;
  q = q * y + 2.616447458e-02f;
  q = q * y + 4.677783231e-01f;
  q = q * y + 1.f;
  return x * p / q;
}
static inline Vec sigmoid_of(Vec x) { return 0.5f + 0.5f * tanh_of(0.5f * x); }

enum Activation { TANH, RELU, LEAKY_RELU, ABS, IDENTITY };

// NaN goes through every activation, so that a diverging run is seen to diverge.
static inline Vec activate(Vec z, int activation, float slope) {
  switch (activation) {
    case TANH: return tanh_of(z);
    case RELU: return z < 0.f ? fill(0.f) : z;
    case LEAKY_RELU: return z < 0.f ? z * slope : z;
    case ABS: return z < 0.f ? -z : z;
    default: return z;
  }
}

// The activation's slope at z, from what was stored of the step: h itself, but z for ABS.
static inline Vec slope_from(Vec stored, int activation, float slope) {
  switch (activation) {
    case TANH: return 1.f - stored * stored;
    case RELU: return stored > 0.f ? fill(1.f) : fill(0.f);
    case LEAKY_RELU: return stored > 0.f ? fill(1.f) : fill(slope);
    case ABS: return stored < 0.f ? fill(-1.f) : fill(1.f);
    default: return fill(1.f);
  }
}
