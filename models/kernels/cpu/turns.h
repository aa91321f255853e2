// Packed rotations on rows of a batch (eq. 7, 8 and 20 of math/README.md).
//
// In stage k of the circle method coordinate i is turned with coordinate k - i modulo m, where m is
// n, or n - 1 for even n, whose last coordinate stands outside the circle. So the partners of
// neighbours are neighbours too, in the opposite order: a stage is one pass over vectors of a row, and
// nothing is looked up. Before a row stands what comes before its first coordinate on the circle, the
// last ones. Lanes beyond the row's end hold anything; nothing that counts is made of them.
#pragma once
#include <algorithm>

#include "arena.h"
#include "vector.h"

// Rows that go through the stages together: so many that they fit in the innermost cache twice, and
// share what is loaded of the angles. A processor that reads what it has just written waits for it,
// which short rows would in every stage.
constexpr int MOST_TURNED_ROWS = 12;
inline int turned_rows(int64_t n) { return n <= 256 ? MOST_TURNED_ROWS : n <= 512 ? 6 : 4; }

static inline Vec reversed(Vec v) {
#if defined(__AVX512F__)
#define REVERSED_LANES 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0
#elif defined(__AVX2__)
#define REVERSED_LANES 7, 6, 5, 4, 3, 2, 1, 0
#else
#define REVERSED_LANES 3, 2, 1, 0
#endif
#if defined(__clang__)
  return __builtin_shufflevector(v, v, REVERSED_LANES);
#else
  return __builtin_shuffle(v, (Bits){REVERSED_LANES});
#endif
#undef REVERSED_LANES
}

// The stages of one matrix: cosines and sines of signed angles [count, np].
struct Stages {
  const float *cos, *sin;
  int64_t count, n, np;

  int64_t circle() const { return n % 2 ? n : n - 1; }
  // Whom the coordinate outside the circle is turned with in stage k.
  int64_t alone(int64_t k) const { return k * (n / 2) % circle(); }
};

// Up to turned_rows(n) rows on their way through the stages.
class Turned {
 public:
  Turned(Arena &arena, int64_t n)
      : n_(n), circle_(n % 2 ? n : n - 1), row_(length(n)), now_(arena.take(turned_rows(n) * row_)),
        next_(arena.take(turned_rows(n) * row_)) {}
  // What one takes of an arena.
  static int64_t room(int64_t n) { return 2 * Arena::rounded(turned_rows(n) * length(n)); }

  void read(int rows, const float *from, int64_t from_row) {
    for (int r = 0; r < rows; r++) {
      memcpy(at(r), from + r * from_row, n_ * 4);
      last_[r] = from[r * from_row + n_ - 1];
    }
    wrap(rows);
  }
  // Zeros follow up to a whole number of vectors.
  void write(int rows, float *to, int64_t to_row) {
    for (int r = 0; r < rows; r++) {
      float *out = to + r * to_row;
      memset(out + (n_ - n_ % LANES), 0, n_ % LANES ? LANES * 4 : 0);
      memcpy(out, at(r), circle_ * 4);
      if (circle_ < n_) out[n_ - 1] = last_[r];
    }
  }
  void add_to(int rows, float *to, int64_t to_row) {
    for (int r = 0; r < rows; r++) {
      for (int64_t i = 0; i < circle_; i++) to[r * to_row + i] += at(r)[i];
      if (circle_ < n_) to[r * to_row + n_ - 1] += last_[r];
    }
  }
  void scale(int rows, const float *by) {
    for (int r = 0; r < rows; r++) {
      for (int64_t i = 0; i < circle_; i++) at(r)[i] *= by[i];
      last_[r] *= by[n_ - 1];
    }
    wrap(rows);
  }
  // out [n] += the sums over the rows of this times another.
  void add_products(int rows, const Turned &other, float *out) const {
    for (int r = 0; r < rows; r++) {
      for (int64_t i = 0; i < circle_; i++) out[i] += at(r)[i] * other.at(r)[i];
      if (circle_ < n_) out[n_ - 1] += last_[r] * other.last_[r];
    }
  }

  // Stages 0 to K - 1, or undo them from K - 1 to 0.
  void turn(int rows, const Stages &s) {
    for (int64_t k = 0; k < s.count; k++) turn(rows, k, s, 1.f);
  }
  void undo(int rows, const Stages &s) {
    for (int64_t k = s.count - 1; k >= 0; k--) turn(rows, k, s, -1.f);
  }
  // From what the stages gave, and its gradient, to what they were given and the gradient of that.
  // What reaches the angles is added to `angles` [K, n]; null: it is not wanted.
  static void back_through_turn(int rows, const Stages &s, Turned &y, Turned &g, float *angles) {
    for (int64_t k = s.count - 1; k >= 0; k--)
      back(rows, k, s, 1.f, y, g, angles ? angles + k * s.n : nullptr);
  }
  static void back_through_undo(int rows, const Stages &s, Turned &y, Turned &g, float *angles) {
    for (int64_t k = 0; k < s.count; k++)
      back(rows, k, s, -1.f, y, g, angles ? angles + k * s.n : nullptr);
  }

 private:
  const int64_t n_, circle_, row_;
  float *now_, *next_;  // [rows, row]: the circle, between LANES more on both sides
  float last_[MOST_TURNED_ROWS];  // coordinate n - 1, where it stands outside the circle

  static int64_t length(int64_t n) { return (n + 4 * LANES) / LANES * LANES; }
  float *at(int r) const { return now_ + r * row_ + LANES; }
  float *after(int r) const { return next_ + r * row_ + LANES; }
  // What comes before the first coordinate on the circle.
  void wrap(int rows) const {
    for (int r = 0; r < rows; r++) store(at(r) - LANES, load(at(r) + circle_ - LANES));
  }
  // Where the partners of coordinates i, i + 1, ... in stage k begin, in the opposite order.
  static int64_t partners(int64_t circle, int64_t k, int64_t i) {
    return (i <= k ? k - i : circle + k - i) - (LANES - 1);
  }

  // y_i = c_i x_i + s_i x_{partner of i}. Pointers are variables of the loop's own: a vector that is
  // stored could change members, for all that a compiler knows.
  void turn(int rows, int64_t k, const Stages &s, float way) {
    const float *cos = s.cos + k * s.np, *sin = s.sin + k * s.np, *from = at(0);
    float *to = after(0);
    const int64_t row = row_, circle = circle_;
    for (int64_t i = 0; i < s.np; i += LANES) {
      const Vec c = load(cos + i), t = way * load(sin + i);
      const float *others = from + partners(circle, k, i);
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++)
        store(to + r * row + i, c * load(from + r * row + i) + t * reversed(load(others + r * row)));
    }
    for (int r = 0; r < rows && circle < n_; r++) turn_outside(r, k, s, way);
    swap_buffers(rows);
  }
  void swap_buffers(int rows) {
    std::swap(now_, next_);
    wrap(rows);
  }
  void turn_outside(int r, int64_t k, const Stages &s, float way) {
    const int64_t a = s.alone(k), b = n_ - 1;
    const float *cos = s.cos + k * s.np, *sin = s.sin + k * s.np, x = at(r)[a], y = last_[r];
    after(r)[a] = cos[a] * x + way * sin[a] * y;
    last_[r] = cos[b] * y + way * sin[b] * x;
  }

  // dL / d(angle of i) is the sum over rows of g_i y_{partner of i}, both as the stage left them.
  static void back(int rows, int64_t k, const Stages &s, float way, Turned &y, Turned &g, float *angles) {
    const float *cos = s.cos + k * s.np, *sin = s.sin + k * s.np;
    const int64_t a = s.alone(k), b = s.n - 1;
    const bool outside = s.circle() < s.n;
    float of_a = angles ? angles[a] : 0, of_b = angles ? angles[b] : 0;
    const float *y_from = y.at(0), *g_from = g.at(0);
    float *y_to = y.after(0), *g_to = g.after(0);
    const int64_t row = y.row_, circle = y.circle_;
    for (int64_t i = 0; i < s.np; i += LANES) {
      const Vec c = load(cos + i), t = way * load(sin + i);
      const int64_t others = partners(circle, k, i);
      Vec sum = {};
#pragma GCC unroll 4
      for (int r = 0; r < rows; r++) {
        const Vec partner = reversed(load(y_from + r * row + others)), gradient = load(g_from + r * row + i);
        sum += gradient * partner;
        store(y_to + r * row + i, c * load(y_from + r * row + i) - t * partner);
        store(g_to + r * row + i, c * gradient - t * reversed(load(g_from + r * row + others)));
      }
      if (angles) store_some(angles + i, load_some(angles + i, s.n - i) + way * sum, s.n - i);
    }
    for (int r = 0; r < rows && outside; r++) {
      of_a += way * g.at(r)[a] * y.last_[r], of_b += way * g.last_[r] * y.at(r)[a];
      y.turn_outside(r, k, s, -way), g.turn_outside(r, k, s, -way);
    }
    if (outside && angles) angles[a] = of_a, angles[b] = of_b;
    y.swap_buffers(rows), g.swap_buffers(rows);
  }
};

inline thread_local Arena turning_arena;
