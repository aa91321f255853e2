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

// y += coefficients * rows, V vectors of it.
template <int V>
void combine_some(float *y, int64_t count, const float *coefficients, int64_t step, const float *rows, int64_t row) {
  Vec sums[V];
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) sums[v] = load(y + v * LANES);
  for (int64_t k = 0; k < count; k++) {
    const Vec c = fill(coefficients[k * step]);
#pragma GCC unroll 8
    for (int v = 0; v < V; v++) sums[v] += c * load(rows + k * row + v * LANES);
  }
#pragma GCC unroll 8
  for (int v = 0; v < V; v++) store(y + v * LANES, sums[v]);
}

// y [n] += coefficients [count] * rows [count, n]; the coefficients are `step` apart.
void combine(float *y, int64_t count, const float *coefficients, int64_t step, const Matrix &rows, int64_t n) {
  if (count <= 0) return;
  int64_t j = 0;
  for (; j + 8 * LANES <= n; j += 8 * LANES)
    combine_some<8>(y + j, count, coefficients, step, rows.data + j, rows.row);
  for (; j + 2 * LANES <= n; j += 2 * LANES)
    combine_some<2>(y + j, count, coefficients, step, rows.data + j, rows.row);
  for (; j < n; j += LANES) combine_some<1>(y + j, count, coefficients, step, rows.data + j, rows.row);
}

// out [columns, rows] = -from^T; rows of `out` have room for whole vectors where `whole` says so.
void turn_over(int64_t rows, int64_t columns, const float *from, int64_t from_row, float *out, int64_t out_row,
               bool whole) {
  for (int64_t r = 0; r < rows; r += LANES)
    for (int64_t c = 0; c < columns; c += LANES)
      transpose_square(rows - r, columns - c, from + r * from_row + c, from_row, out + c * out_row + r, out_row, whole, -1);
}

// out [rows, padded(w.columns)] = from [rows, depth] * w
void products(const Matrix &from, int64_t rows, const Panels &w, const Matrix &out, bool whole = true) {
  const int64_t tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
  for (int64_t t = 0; t < tiles; t++) {
    const int64_t first = rows * t / tiles, next = rows * (t + 1) / tiles;
    multiply((int)(next - first), from[first], from.row, w, out[first], out.row, whole);
  }
}

// The numbers of one matrix W, in one thread's memory.
struct Svd {
  const SvdShape &s;
  int64_t d, np, dp, vp;
  float *sigma;
  float *u_scale, *v_scale;  // sqrt(2) over the rows' lengths
  Matrix sides, results;     // Z_v S and Z_u, A and C: one below the other
  Matrix v, scaled, u, a, c;
  Matrix v_gram, u_dots;     // Z_v Z_v^T; Z_u times both of the sides
  Matrix left;               // L of a matrix that is wanted as a whole
  float *packed;

  Svd(const SvdShape &shape, Arena &arena)
      : s(shape), d(s.u_count + s.v_count), np(padded(s.size)), dp(padded(d)), vp(padded(s.v_count)) {
    sigma = arena.take(np), u_scale = arena.take(s.u_count), v_scale = arena.take(s.v_count);
    sides = take(d, np, arena), results = take(d, np, arena), v = take(s.v_count, np, arena);
    scaled = sides, u = {sides[s.v_count], np};
    a = results, c = {results[s.v_count], np};
    v_gram = take(s.v_count, vp, arena), u_dots = take(s.u_count, dp, arena);
    left = take(s.size, dp, arena);
    packed = arena.take(packed_floats(s));
  }
  static Matrix take(int64_t rows, int64_t columns, Arena &arena) { return {arena.take(rows * columns), columns}; }

  static int64_t packed_floats(const SvdShape &s) {
    const int64_t n = s.size, d = s.u_count + s.v_count;
    return std::max({packed_size(n, d), packed_size(d, n), packed_size(n, n)});
  }
  // Of both directions.
  static int64_t floats(const SvdShape &s) {
    const int64_t np = padded(s.size), d = s.u_count + s.v_count, dp = padded(d);
    return 32 * Arena::rounded(0) + 2 * np + 2 * d + 6 * d * np + 5 * d * dp + s.size * dp + packed_floats(s);
  }

  void load_row(const float *from, float *to) const {
    for (int64_t j = 0; j < np; j += LANES) store(to + j, load_some(from + j, s.size - j));
  }
  void read(const SvdArguments &g, int64_t copy) const {
    load_row(g.sigma + copy * s.size, sigma);
    for (int64_t i = 0; i < s.u_count; i++)
      u_scale[i] = load_scaled(g.u + (copy * s.u_count + i) * s.size, u[i]);
    for (int64_t i = 0; i < s.v_count; i++) {
      v_scale[i] = load_scaled(g.v + (copy * s.v_count + i) * s.size, v[i]);
      product(scaled[i], sigma, v[i], np);
    }
  }
  // A row of length sqrt(2), and what it was multiplied by; a row of zeros stays one. Squares of
  // single precision neither overflow nor vanish in double.
  float load_scaled(const float *from, float *to) const {
    constexpr int CHAINS = 8;
    double squares[CHAINS] = {}, square = 0;
    int64_t j = 0;
    for (; j + CHAINS <= s.size; j += CHAINS)
      for (int i = 0; i < CHAINS; i++) squares[i] += double(from[j + i]) * from[j + i];
    for (; j < s.size; j++) square += double(from[j]) * from[j];
    for (int i = 0; i < CHAINS; i++) square += squares[i];
    const double scale = square > 0 ? std::sqrt(2 / square) : 0;
    for (int64_t i = 0; i < s.size; i++) to[i] = float(from[i] * scale);
    for (int64_t i = s.size; i < np; i++) to[i] = 0;
    return float(scale);
  }

  void solve() const {
    products(v, s.v_count, pack_columns(s.size, s.v_count, packed, v.data, np), v_gram);
    products(u, s.u_count, pack_columns(s.size, d, packed, sides.data, np), u_dots);
    // What is taken away is added with these.
    negate(v_gram, s.v_count, vp), negate(u_dots, s.u_count, dp);
    for (int64_t i = 0; i < s.v_count; i++) {
      memcpy(a[i], v[i], np * 4);
      combine(a[i], i, v_gram[i], 1, a, np);
    }
    for (int64_t i = s.u_count - 1; i >= 0; i--) {
      product(c[i], sigma, u[i], np);
      combine(c[i], s.v_count, u_dots[i], 1, a, np);
      combine(c[i], s.u_count - i - 1, u_gram(i) + i + 1, 1, {c[i + 1], np}, np);
    }
  }
  static void negate(const Matrix &m, int64_t rows, int64_t columns) {
    for (int64_t j = 0; j < rows * columns; j += LANES) store(m.data + j, -load(m.data + j));
  }
  // -z_i . z_j for all reflectors j of U
  const float *u_gram(int64_t i) const { return u_dots[i] + s.v_count; }

  void write(const SvdArguments &g, int64_t copy) const {
    if (g.weight) return write_weight(g.weight + copy * s.size * s.size);
    float *right = g.right + copy * d * s.size;
    turn_over(d, s.size, sides.data, np, g.left + copy * s.size * d, d, false);
    for (int64_t k = 0; k < d; k++) memcpy(right + k * s.size, results[k], s.size * 4);
  }
  // diag(sigma) + L R
  void write_weight(float *weight) const {
    turn_over(d, s.size, sides.data, np, left.data, dp, false);
    const Panels right = pack_rows(d, s.size, packed, [this](int64_t k) { return results[k]; });
    products(left, s.size, right, {weight, s.size}, false);
    for (int64_t i = 0; i < s.size; i++) weight[i * s.size + i] += sigma[i];
  }
};

// Gradients go the way back, in the order of `Svd::solve` turned round.
struct SvdBackward {
  const Svd &f;
  Matrix sides, results;  // of Z_v S and Z_u, of A and C
  Matrix v, scaled, u, a, c;
  Matrix v_pairs, u_pairs;  // of the products of Z_v, and those of Z_u with both of the sides
  float *sigma;

  SvdBackward(const Svd &forward, Arena &arena) : f(forward) {
    const SvdShape &s = f.s;
    sides = f.take(f.d, f.np, arena), results = f.take(f.d, f.np, arena), v = f.take(s.v_count, f.np, arena);
    scaled = sides, u = {sides[s.v_count], f.np};
    a = results, c = {results[s.v_count], f.np};
    v_pairs = f.take(s.v_count, f.dp, arena), u_pairs = f.take(s.u_count, f.dp, arena);
    sigma = arena.take(f.np);
  }

  void read(const SvdGradients &g, int64_t copy) const {
    const SvdShape &s = f.s;
    memset(sigma, 0, f.np * 4);
    if (g.weight) return read_weight(g.weight + copy * s.size * s.size);
    const float *right = g.right + copy * f.d * s.size;
    turn_over(s.size, f.d, g.left + copy * s.size * f.d, f.d, sides.data, f.np, true);
    for (int64_t k = 0; k < f.d; k++) f.load_row(right + k * s.size, results[k]);
  }

  // What reaches diag(sigma) + L R reaches its factors.
  void read_weight(const float *weight) const {
    const int64_t n = f.s.size;
    products(f.results, f.d, pack_columns(n, n, f.packed, weight, n), sides);
    products(f.sides, f.d, pack_rows(n, n, f.packed, [=](int64_t i) { return weight + i * n; }), results);
    Svd::negate(sides, f.d, f.np), Svd::negate(results, f.d, f.np);
    for (int64_t i = 0; i < n; i++) sigma[i] = weight[i * n + i];
  }

  // What reaches products of two rows of one side: each pair's enters one triangle, and both rows.
  static void reflect(const Matrix &pairs, int64_t first, int64_t count, bool upper) {
    for (int64_t i = 0; i < count; i++) {
      float *row = pairs[i] + first;
      row[i] = 0;
      for (int64_t j = i + 1; j < count; j++) {
        float &above = row[j], &below = pairs[j][first + i];
        above = below = -(upper ? above : below);
      }
    }
  }

  void solve() const {
    const SvdShape &s = f.s;
    const int64_t np = f.np, m1 = s.u_count, m2 = s.v_count;
    for (int64_t j = 0; j < m1; j++) combine(c[j], j, f.u_gram(j), 1, c, np);
    const Panels made = pack_columns(s.size, f.d, f.packed, f.results.data, np);
    products(c, m1, made, u_pairs);
    for (int64_t i = 0; i < m1; i++)
      for (int64_t j = 0; j < m2; j++) u_pairs[i][j] = -u_pairs[i][j];
    reflect(u_pairs, m2, m1, true);
    for (int64_t i = 0; i < m1; i++) {
      combine(u[i], f.d, u_pairs[i], 1, f.sides, np);
      add_product(u[i], c[i], f.sigma, np);
      add_product(sigma, c[i], f.u[i], np);
    }
    for (int64_t j = m2 - 1; j >= 0; j--) {
      combine(a[j], m1, f.u_dots.data + j, f.dp, c, np);
      combine(scaled[j], m1, u_pairs.data + j, f.dp, f.u, np);
      combine(a[j], m2 - j - 1, f.v_gram[j] + j + 1, 1, {a[j + 1], np}, np);
    }
    products(a, m2, made, v_pairs);
    reflect(v_pairs, 0, m2, false);
    for (int64_t i = 0; i < m2; i++) {
      memcpy(v[i], a[i], np * 4);
      combine(v[i], m2, v_pairs[i], 1, f.v, np);
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
  in_parallel(Runs{threads, s.copies}, [&](int64_t, int64_t begin, int64_t end) {
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
