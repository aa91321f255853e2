// What the uRNN's sequences read: the factors of their matrix, and rows of the batch by lanes.
#pragma once
#include <math.h>

#include <algorithm>

#include "blocks.h"
#include "fourier.h"
#include "unitary.h"

constexpr double SQRT_2 = 1.4142135623730951;

inline Complex operator+(Complex a, Complex b) { return {a.re + b.re, a.im + b.im}; }
inline Complex operator-(Complex a, Complex b) { return {a.re - b.re, a.im - b.im}; }
inline Complex operator*(Vec a, Complex b) { return {a * b.re, a * b.im}; }
// a b^*
inline Complex by_conjugate(Complex a, Complex b) {
  return {a.re * b.re + a.im * b.im, a.im * b.re - a.re * b.im};
}
// The imaginary part of a^* b.
inline Vec angle_between(Complex a, Complex b) { return a.re * b.im - a.im * b.re; }

// v^* z for every lane, in a few sums side by side, since each addition waits for the one before.
inline Complex product(const float *v, const float *z, int64_t n) {
  Complex sums[4] = {};
  int64_t j = 0;
  for (; j + 4 <= n; j += 4)
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) sums[i] = sums[i] + times_conjugate(coordinate(z, j + i), v, j + i);
  for (; j < n; j++) sums[0] = sums[0] + times_conjugate(coordinate(z, j), v, j);
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// A model's factors as a sequence of transforms reads them: tables of complex numbers, some in the order of
// the places at which the transform leaves its coordinates.
struct Factors {
  const int64_t n;
  const Transform &transform;
  float *first, *second, *third;  // D_1 and D_2 with 1 / sqrt(n), D_2 in order of places; D_3
  float *second_from;             // D_2 without, in the order in which Pi reads
  float *before, *before_moved;   // the vector of R_1 in order of places, and after D_2 Pi
  float *after;                   // that of R_2
  int64_t *from, *to;             // Pi: place p reads place from[p], place q is read by to[q]
  int64_t *at;                    // the coordinate at a place
  double lengths[2];              // of the vectors that were given

  Factors(const UnitaryShape &s, const UnitaryArguments &a, int64_t model, const Transform &given, Arena &arena)
      : n(s.size), transform(given) {
    for (float **table : {&first, &second, &third, &second_from, &before, &before_moved, &after})
      *table = arena.take(2 * n);
    for (int64_t **places : {&from, &to, &at}) *places = (int64_t *)memset(arena.take(2 * n), 0, n * 8);
    const float scale = (float)(1 / sqrt((double)n));
    const float *cos = a.turns + model * 3 * n, *sin = cos + s.models * 3 * n;
    const int64_t *order = a.order + model * n;
    for (int64_t j = 0; j < n; j++) {
      at[transform.place(j)] = j;
      set(first, j, scale * cos[j], scale * sin[j]);
      set(third, j, cos[2 * n + j], sin[2 * n + j]);
    }
    const float *vectors = a.vectors + model * 4 * n;
    for (int i = 0; i < 2; i++) lengths[i] = length_of(vectors + 2 * i * n, 2 * n);
    for (int64_t p = 0; p < n; p++) {
      const int64_t j = at[p], q = transform.place(order[j]);
      from[p] = q, to[q] = p;
      set(second, p, scale * cos[n + j], scale * sin[n + j]);
      set(second_from, q, cos[n + j], sin[n + j]);
      set(before, p, unit(0, vectors[j]), unit(0, vectors[n + j]));
      set(after, p, unit(1, vectors[2 * n + p]), unit(1, vectors[3 * n + p]));
    }
    for (int64_t p = 0; p < n; p++) {
      const float *v = before + 2 * from[p], *d = second_from + 2 * from[p];
      set(before_moved, p, v[0] * d[0] - v[1] * d[1], v[0] * d[1] + v[1] * d[0]);
    }
  }
  static int64_t room(int64_t n) { return 10 * Arena::rounded(2 * n); }

  // Entries of vectors of length sqrt(2), so that R = I - v v^*.
  float unit(int i, float x) const { return lengths[i] > 0 ? (float)(SQRT_2 / lengths[i] * x) : x; }

 private:
  // In double precision, in which no square is too small or too large.
  static double length_of(const float *v, int64_t count) {
    double square = 0;
    for (int64_t k = 0; k < count; k++) square += (double)v[k] * v[k];
    return sqrt(square);
  }
  static void set(float *table, int64_t j, float re, float im) { table[2 * j] = re, table[2 * j + 1] = im; }
};

// Rows of a model's batch that are computed side by side.
struct Samples {
  const UnitaryShape &s;
  const UnitaryArguments &a;
  const Factors &f;
  const float *bias;  // [n], the model's
  int64_t model, first;
  int rows;

  Samples(const UnitaryShape &s, const UnitaryArguments &a, const Factors &f, int64_t model, int64_t tile)
      : s(s), a(a), f(f), bias(a.bias + model * s.size), model(model), first(tile * LANES),
        rows((int)std::min<int64_t>(LANES, s.batch - first)) {}

  // Where its rows begin in a tensor [M, B, 2 n], or in step t of [M, T, B, 2 n].
  int64_t at() const { return (model * s.batch + first) * 2 * s.size; }
  int64_t at(int64_t t) const { return ((model * s.steps + t) * s.batch + first) * 2 * s.size; }
  // In which lanes there is a sample that step t is a step of.
  Bits live(int64_t t) const {
    Bits found = {};
    for (int i = 0; i < rows; i++) found[i] = !a.lengths || t < a.lengths[model * s.batch + first + i] ? -1 : 0;
    return found;
  }
  // work(j, count) for every run of LANES coordinates.
  template <class Work> void in_runs(Work work) const {
    for (int64_t j = 0; j < s.size; j += LANES) work(j, std::min<int64_t>(LANES, s.size - j));
  }
};

// Some coordinates of a tile's rows in a tensor.
struct Run {
  Vec re[LANES], im[LANES];

  // What lies `next` floats further is asked for, if anything: it is read or written a step later.
  void read(const Samples &k, const float *rows, int64_t j, int64_t count, int64_t next = 0) {
    const int64_t n = k.s.size;
    if (next) ask(k, rows + next, j);
    read_block(rows + j, 2 * n, k.rows, count, re);
    read_block(rows + n + j, 2 * n, k.rows, count, im);
  }
  void write(const Samples &k, float *rows, int64_t j, int64_t count, int64_t next = 0) const {
    const int64_t n = k.s.size;
    if (next) ask(k, rows + next, j);
    write_block(re, rows + j, 2 * n, k.rows, count);
    write_block(im, rows + n + j, 2 * n, k.rows, count);
  }
  static void ask(const Samples &k, const float *rows, int64_t j) {
    const int64_t n = k.s.size;
    for (int r = 0; r < k.rows; r++, rows += 2 * n) {
      __builtin_prefetch(rows + j, 0, 2);
      __builtin_prefetch(rows + n + j, 0, 2);
    }
  }
  Complex operator[](int64_t i) const { return {re[i], im[i]}; }
  void set(int64_t i, Complex x) { re[i] = x.re, im[i] = x.im; }
};

inline void read_tile(const Samples &k, const float *rows, float *z) {
  k.in_runs([&](int64_t j, int64_t count) {
    Run run;
    run.read(k, rows, j, count);
    for (int64_t i = 0; i < count; i++) put(z, j + i, run[i]);
  });
}
inline void write_tile(const Samples &k, const float *z, float *rows) {
  k.in_runs([&](int64_t j, int64_t count) {
    Run run = {};
    for (int64_t i = 0; i < count; i++) run.set(i, coordinate(z, j + i));
    run.write(k, rows, j, count);
  });
}

// Lane by lane.
inline Complex chosen(Bits which, Complex a, Complex b) { return {which ? a.re : b.re, which ? a.im : b.im}; }
inline Complex where(Bits which, Complex a) { return chosen(which, a, Complex{}); }
