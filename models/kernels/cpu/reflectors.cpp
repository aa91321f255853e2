// W = Q_U diag(s) Q_V^T as a diagonal plus low rank (eq. 6 of ops/README.md), forward and backward.
//
// A few dozen short vectors: torch spends more between its operations than in them. Rows are padded
// with zeros to whole vectors.
#include <atomic>
#include <cmath>

#include "reflectors.h"
#include "threads.h"

namespace {

struct Matrix {
  float *data;
  int64_t row;
  float *operator[](int64_t i) const { return data + i * row; }
};

float dot(const float *a, const float *b, int64_t n) {
  Vec sums[2] = {};
  int64_t j = 0;
  for (; j + 2 * LANES <= n; j += 2 * LANES)
    for (int v = 0; v < 2; v++) sums[v] += load(a + j + v * LANES) * load(b + j + v * LANES);
  for (; j < n; j += LANES) sums[0] += load(a + j) * load(b + j);
  return sum_of(sums[0] + sums[1]);
}

// y += c x
void add(float *y, float c, const float *x, int64_t n) {
  for (int64_t j = 0; j < n; j += LANES) store(y + j, load(y + j) + c * load(x + j));
}
// y += a b, entry by entry
void add_product(float *y, const float *a, const float *b, int64_t n) {
  for (int64_t j = 0; j < n; j += LANES) store(y + j, load(y + j) + load(a + j) * load(b + j));
}
void product(float *y, const float *a, const float *b, int64_t n) {
  for (int64_t j = 0; j < n; j += LANES) store(y + j, load(a + j) * load(b + j));
}

// The numbers of one matrix W, in one thread's memory.
struct Svd {
  const SvdShape &s;
  int64_t np;
  float *sigma;
  float *u_scale, *v_scale;          // sqrt(2) over the rows' lengths
  Matrix u, v, scaled, inner, a, c;  // Z_u, Z_v, Z_v S, the product of Z_u and (Z_v S)^T, A, C

  Svd(const SvdShape &shape, Arena &arena) : s(shape), np(padded(shape.size)) {
    sigma = arena.take(np), u_scale = arena.take(s.u_count), v_scale = arena.take(s.v_count);
    u = take(s.u_count, arena), v = take(s.v_count, arena), scaled = take(s.v_count, arena);
    inner = {arena.take(s.u_count * s.v_count), s.v_count};
    a = take(s.v_count, arena), c = take(s.u_count, arena);
  }
  Matrix take(int64_t rows, Arena &arena) const { return {arena.take(rows * np), np}; }

  static int64_t floats(const SvdShape &s) {
    const int64_t np = padded(s.size), rows = s.u_count + s.v_count;
    return 16 * Arena::rounded(0) + 6 * rows * np + 2 * s.u_count * s.v_count + 3 * np + rows;
  }

  void load_row(const float *from, float *to) const {
    for (int64_t j = 0; j < np; j += LANES) store(to + j, load_some(from + j, s.size - j));
  }
  void read(const SvdArguments &g, int64_t copy) const {
    load_row(g.sigma + copy * s.size, sigma);
    for (int64_t i = 0; i < s.u_count; i++)
      u_scale[i] = load_scaled(g.u + (copy * s.u_count + i) * s.size, u[i]);
    for (int64_t i = 0; i < s.v_count; i++)
      v_scale[i] = load_scaled(g.v + (copy * s.v_count + i) * s.size, v[i]);
  }
  // A row of length sqrt(2), and what it was multiplied by; a row of zeros stays one. Squares of
  // single precision neither overflow nor vanish in double.
  float load_scaled(const float *from, float *to) const {
    double square = 0;
    for (int64_t j = 0; j < s.size; j++) square += double(from[j]) * from[j];
    const double scale = square > 0 ? std::sqrt(2 / square) : 0;
    for (int64_t j = 0; j < np; j++) to[j] = j < s.size ? float(from[j] * scale) : 0.f;
    return float(scale);
  }

  void solve() const {
    for (int64_t i = 0; i < s.v_count; i++) {
      product(scaled[i], sigma, v[i], np);
      memcpy(a[i], v[i], np * 4);
      for (int64_t j = 0; j < i; j++) add(a[i], -dot(v[i], v[j], np), a[j], np);
    }
    for (int64_t i = s.u_count - 1; i >= 0; i--) {
      product(c[i], sigma, u[i], np);
      for (int64_t j = 0; j < s.v_count; j++) {
        inner[i][j] = dot(u[i], scaled[j], np);
        add(c[i], -inner[i][j], a[j], np);
      }
      for (int64_t j = i + 1; j < s.u_count; j++) add(c[i], -dot(u[i], u[j], np), c[j], np);
    }
  }

  void write(const SvdArguments &g, int64_t copy) const {
    const int64_t d = s.u_count + s.v_count;
    float *left = g.left + copy * s.size * d, *right = g.right + copy * d * s.size;
    for (int64_t k = 0; k < d; k++) {
      const bool v_side = k < s.v_count;
      const float *column = v_side ? scaled[k] : u[k - s.v_count];
      for (int64_t j = 0; j < s.size; j++) left[j * d + k] = -column[j];
      memcpy(right + k * s.size, v_side ? a[k] : c[k - s.v_count], s.size * 4);
    }
  }
};

// Gradients go the way back, in the order of `Svd::solve` turned round.
struct SvdBackward {
  const Svd &f;
  Matrix u, v, scaled, a, c;
  float *sigma;

  SvdBackward(const Svd &forward, Arena &arena) : f(forward) {
    u = f.take(f.s.u_count, arena), v = f.take(f.s.v_count, arena), scaled = f.take(f.s.v_count, arena);
    a = f.take(f.s.v_count, arena), c = f.take(f.s.u_count, arena);
    sigma = arena.take(f.np);
  }

  void read(const SvdGradients &g, int64_t copy) const {
    const SvdShape &s = f.s;
    const int64_t d = s.u_count + s.v_count;
    const float *left = g.left + copy * s.size * d, *right = g.right + copy * d * s.size;
    memset(sigma, 0, f.np * 4);
    for (int64_t k = 0; k < d; k++) {
      const bool v_side = k < s.v_count;
      float *column = v_side ? scaled[k] : u[k - s.v_count];
      for (int64_t j = 0; j < f.np; j++) column[j] = j < s.size ? -left[j * d + k] : 0.f;
      f.load_row(right + k * s.size, v_side ? a[k] : c[k - s.v_count]);
    }
    for (int64_t i = 0; i < s.v_count; i++) memset(v[i], 0, f.np * 4);
  }

  // A pair's product enters one triangle: weight w of dL / d(z_i . z_j).
  void pair(const Matrix &grad, const Matrix &z, int64_t i, int64_t j, float w) const {
    add(grad[i], w, z[j], f.np);
    add(grad[j], w, z[i], f.np);
  }

  void solve() const {
    const SvdShape &s = f.s;
    const int64_t np = f.np;
    for (int64_t j = 0; j < s.u_count; j++)
      for (int64_t i = 0; i < j; i++) add(c[j], -dot(f.u[i], f.u[j], np), c[i], np);
    for (int64_t i = 0; i < s.u_count; i++) {
      for (int64_t j = i + 1; j < s.u_count; j++) pair(u, f.u, i, j, -dot(c[i], f.c[j], np));
      add_product(u[i], c[i], f.sigma, np);
      add_product(sigma, c[i], f.u[i], np);
      for (int64_t j = 0; j < s.v_count; j++) {
        const float w = -dot(c[i], f.a[j], np);
        add(a[j], -f.inner[i][j], c[i], np);
        add(u[i], w, f.scaled[j], np);
        add(scaled[j], w, f.u[i], np);
      }
    }
    for (int64_t i = s.v_count - 1; i >= 0; i--)
      for (int64_t j = i + 1; j < s.v_count; j++) add(a[i], -dot(f.v[i], f.v[j], np), a[j], np);
    for (int64_t i = 0; i < s.v_count; i++) {
      add(v[i], 1, a[i], np);
      for (int64_t j = 0; j < i; j++) pair(v, f.v, i, j, -dot(a[i], f.a[j], np));
      add_product(sigma, scaled[i], f.v[i], np);
      add_product(v[i], f.sigma, scaled[i], np);
    }
  }

  void write(const SvdGradients &g, int64_t copy) const {
    const SvdShape &s = f.s;
    memcpy(g.sigma + copy * s.size, sigma, s.size * 4);
    for (int64_t i = 0; i < s.u_count; i++)
      unscale(u[i], f.u[i], f.u_scale[i], g.u + (copy * s.u_count + i) * s.size);
    for (int64_t i = 0; i < s.v_count; i++)
      unscale(v[i], f.v[i], f.v_scale[i], g.v + (copy * s.v_count + i) * s.size);
  }
  // From a row of length sqrt(2) to the row that was given (eq. 4): along itself it had no effect.
  void unscale(float *grad, const float *z, float scale, float *out) const {
    add(grad, -0.5f * dot(grad, z, f.np), z, f.np);
    for (int64_t j = 0; j < f.s.size; j++) out[j] = scale * grad[j];
  }
};

template <class Work> int over_copies(const SvdShape &s, Work work) {
  std::atomic<int> failed{0};
  const int64_t d = s.u_count + s.v_count;
  const double each = double(d) * d * s.size;
  const int64_t threads = std::max<int64_t>(1, std::min({s.threads, s.copies, int64_t(each * s.copies / 4e6) + 1}));
  in_parallel(threads, s.copies, [&](int64_t, int64_t begin, int64_t end) {
    tile_arena.reset(2 * Svd::floats(s));
    if (tile_arena.failed()) { failed = 1; return; }
    Svd forward(s, tile_arena);
    SvdBackward backward(forward, tile_arena);
    for (int64_t copy = begin; copy < end; copy++) work(copy, forward, backward);
  });
  return failed;
}

}  // namespace

int svd_factors_forward(const SvdShape *shape, const SvdArguments *arguments) {
  return over_copies(*shape, [&](int64_t copy, const Svd &f, const SvdBackward &) {
    f.read(*arguments, copy);
    f.solve();
    f.write(*arguments, copy);
  });
}

int svd_factors_backward(const SvdShape *shape, const SvdArguments *arguments, const SvdGradients *gradients) {
  return over_copies(*shape, [&](int64_t copy, const Svd &f, const SvdBackward &b) {
    f.read(*arguments, copy);
    f.solve();
    b.read(*gradients, copy);
    b.solve();
    b.write(*gradients, copy);
  });
}
