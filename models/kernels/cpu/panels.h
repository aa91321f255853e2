// Small matrix products on packed panels: register tiles that never leave a thread's caches.
#pragma once
#include "vector.h"

constexpr int PANEL = 2 * LANES;

static inline int64_t padded(int64_t size) { return (size + LANES - 1) / LANES * LANES; }

// A matrix [depth, columns], packed by panels of 2 * LANES columns (the last may have LANES), row
// after row, with zeros behind the last column.
struct Panels {
  int64_t columns = 0, depth = 0;
  const float *data = nullptr;
  const float *at(int64_t column) const { return data + column * depth; }
};

static inline int64_t packed_size(int64_t depth, int64_t columns) { return depth * padded(columns); }

// row(k) is where row k of the matrix begins; null for a row of zeros.
template <class Row>
static inline Panels pack_rows(int64_t depth, int64_t columns, float *out, Row row) {
  Panels panels{columns, depth, out};
  for (int64_t first = 0; first < padded(columns); first += PANEL) {
    const int64_t width = padded(columns) - first < PANEL ? LANES : PANEL;
    for (int64_t k = 0; k < depth; k++, out += width) {
      const float *from = row(k);
      for (int64_t j = 0; j < width; j += LANES)
        store(out + j, from ? load_some(from + first + j, columns - first - j) : (Vec){});
    }
  }
  return panels;
}

// The matrix's column j begins at from + j * step.
static inline Panels pack_columns(int64_t depth, int64_t columns, float *out, const float *from, int64_t step) {
  Panels panels{columns, depth, out};
  for (int64_t first = 0; first < padded(columns); first += PANEL) {
    const int64_t width = padded(columns) - first < PANEL ? LANES : PANEL;
    for (int64_t j = 0; j < width; j += LANES)
      for (int64_t k = 0; k < depth; k += LANES)
        transpose_square(columns - first - j, depth - k, from + (first + j) * step + k, step, out + k * width + j, width,
                    true);
    out += depth * width;
  }
  return panels;
}

// One register tile [M, V * LANES] of a product, from its start to where it goes. All of it stays in
// registers, for tiles whose depth is a thin rank take as long to load and store as to multiply.
// Pointers are to the tile's first column; null ones add nothing.
struct Product {
  // out = given + bias + x column + sum over terms of diagonal * from, and then + each part's a panel
  const float *given = nullptr;              // [M, V * LANES]
  int64_t given_row = 0;
  const float *bias = nullptr;               // [V * LANES]
  const float *column = nullptr, *x = nullptr;  // [V * LANES], [M, 1]
  int64_t x_row = 0;
  const float *diagonal = nullptr, *from = nullptr;  // [terms, step], [M, terms, step]
  int64_t terms = 1, step = 0, from_row = 0;
  struct Part {
    const float *a;      // [M, depth]
    int64_t row, depth;
    const float *panel;  // [depth, V * LANES]
  } part[4];
  int parts = 0;
  float *out = nullptr;
  int64_t out_row = 0, columns = 2 * LANES;  // columns behind these are not written
};

template <int V> static inline void load_all(const float *p, Vec *out) {
  for (int v = 0; v < V; v++) out[v] = load(p + v * LANES);
}

// c += a panel. A sum waits four cycles for the one before: where a tile has few of them, each is cut
// into chains that do not wait for each other.
template <int M, int V> static inline void add_part(const Product::Part &p, Vec (&c)[M][V]) {
  constexpr int CHAINS = M * V >= 8 ? 1 : M * V >= 4 ? 2 : 4;
  const float *a = p.a, *panel = p.panel;
  const int64_t row = p.row, together = p.depth / CHAINS * CHAINS;
  Vec b[V], s[CHAINS][M][V];
  int64_t k = 0;
  if (CHAINS > 1) {
    for (int q = 0; q < CHAINS; q++)
      for (int i = 0; i < M; i++)
        for (int v = 0; v < V; v++) s[q][i][v] = (Vec){};
    for (; k < together; k += CHAINS, panel += CHAINS * V * LANES)
#pragma GCC unroll 4
      for (int q = 0; q < CHAINS; q++) {
        load_all<V>(panel + q * V * LANES, b);
#pragma GCC unroll 12
        for (int i = 0; i < M; i++) {
          Vec x = fill(a[i * row + k + q]);
          for (int v = 0; v < V; v++) s[q][i][v] += x * b[v];
        }
      }
    for (int q = 0; q < CHAINS; q++)
      for (int i = 0; i < M; i++)
        for (int v = 0; v < V; v++) c[i][v] += s[q][i][v];
  }
  for (; k < p.depth; k++, panel += V * LANES) {
    load_all<V>(panel, b);
#pragma GCC unroll 12
    for (int i = 0; i < M; i++) {
      Vec x = fill(a[i * row + k]);
      for (int v = 0; v < V; v++) c[i][v] += x * b[v];
    }
  }
}

template <int M, int V> static void tile(const Product &p) {
  Vec c[M][V], b[V];
  for (int v = 0; v < V; v++) b[v] = p.bias ? load(p.bias + v * LANES) : (Vec){};
#pragma GCC unroll 12
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) c[i][v] = b[v];
  if (p.given) {
#pragma GCC unroll 12
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) c[i][v] += load(p.given + i * p.given_row + v * LANES);
  }
  if (p.column) {
    load_all<V>(p.column, b);
#pragma GCC unroll 12
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) c[i][v] += p.x[i * p.x_row] * b[v];
  }
  for (int64_t term = 0; p.diagonal && term < p.terms; term++) {
    load_all<V>(p.diagonal + term * p.step, b);
    const float *from = p.from + term * p.step;
#pragma GCC unroll 12
    for (int i = 0; i < M; i++)
      for (int v = 0; v < V; v++) c[i][v] += b[v] * load(from + i * p.from_row + v * LANES);
  }
  // The first part apart: most tiles have no other, and no loop around it is quicker. Not so for
  // tiles of few rows, whose code has chains.
  const int apart = M > 3 && p.parts ? 1 : 0;
  if (apart) add_part<M, V>(p.part[0], c);
  for (int i = apart; i < p.parts; i++) add_part<M, V>(p.part[i], c);
  const bool whole = p.columns >= V * LANES;
  float tail[M * V * LANES], *out = whole ? p.out : tail;
  const int64_t out_row = whole ? p.out_row : V * LANES;
#pragma GCC unroll 12
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) store(out + i * out_row + v * LANES, c[i][v]);
  if (whole) return;
  for (int i = 0; i < M; i++) memcpy(p.out + i * p.out_row, tail + i * V * LANES, p.columns * 4);
}

template <int V> static inline void tile_rows(int m, const Product &p) {
  switch (m) {
    case 1: return tile<1, V>(p);
    case 2: return tile<2, V>(p);
    case 3: return tile<3, V>(p);
    case 4: return tile<4, V>(p);
    case 5: return tile<5, V>(p);
    case 6: return tile<6, V>(p);
#if !defined(__AVX2__) || defined(__AVX512F__)
    case 7: return tile<7, V>(p);
    case 8: return tile<8, V>(p);
#endif
#if defined(__AVX512F__)
    case 9: return tile<9, V>(p);
    case 10: return tile<10, V>(p);
    case 11: return tile<11, V>(p);
    case 12: return tile<12, V>(p);
#endif
  }
}

// Sums of one panel, for up to TILE_ROWS rows: vector v of row first + i is sums[i * vectors + v].
struct Sums {
  Vec sums[TILE_ROWS * 2];
  int64_t column;  // of the panel's first
  int vectors;     // 1 or 2
  int first, rows;

  // A tile that ends here.
  Product into() {
    Product p;
    p.out = (float *)sums, p.out_row = vectors * LANES;
    return p;
  }
  // Makes it add to what is here.
  void keep(Product &p) { p.given = p.out, p.given_row = p.out_row; }
  // One more part: a [rows, depth] * the panel at this column.
  void add(Product &p, const float *a, int64_t row, const Panels &w) const {
    p.part[p.parts++] = {a + first * row, row, w.depth, w.at(column)};
  }
  void run(const Product &p) {
    if (vectors == 2) tile_rows<2>(rows, p);
    else tile_rows<1>(rows, p);
  }
  // f(vector, row, column) for every vector of the panel.
  template <class F> void each(F f) {
    for (int i = 0; i < rows; i++)
      for (int v = 0; v < vectors; v++) f(sums[i * vectors + v], first + i, column + v * LANES);
  }
};

// f(sums) for every panel of `columns` columns, and there for all rows: what is read of a panel stays in
// a cache from tile to tile.
template <class F> static inline void for_panels(int rows, int64_t columns, F f) {
  const int tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
  Sums s;
  for (int64_t j = 0; j < padded(columns); j += PANEL) {
    s.column = j;
    s.vectors = padded(columns) - j < PANEL ? 1 : 2;
    for (int i = 0; i < tiles; i++) {
      s.first = rows * i / tiles;
      s.rows = rows * (i + 1) / tiles - s.first;
      f(s);
    }
  }
}

// out [rows, columns] = a [rows, depth] * w; columns in memory are padded where `whole` says so.
static inline void multiply(int rows, const float *a, int64_t a_row, const Panels &w, float *out,
                            int64_t out_row, bool whole) {
  for_panels(rows, w.columns, [&](Sums &s) {
    Product p;
    p.out = out + s.first * out_row + s.column, p.out_row = out_row;
    if (!whole) p.columns = w.columns - s.column;
    s.add(p, a, a_row, w);
    s.run(p);
  });
}

// c [M, V * LANES] += a^T b with a [rows, M] and b [rows, V * LANES]; of c only n columns are there,
// and lanes of b behind them are loaded and unused.
template <int M, int V>
static void outer_tile(int64_t rows, const float *a, int64_t a_row, const float *b, int64_t b_row,
                       int64_t n, float *c, int64_t c_row) {
  Vec s[M][V];
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) s[i][v] = (Vec){};
  for (int64_t r = 0; r < rows; r++, a += a_row, b += b_row) {
    Vec y[V];
    for (int v = 0; v < V; v++) y[v] = load(b + v * LANES);
#pragma GCC unroll 12
    for (int i = 0; i < M; i++) {
      Vec x = fill(a[i]);
      for (int v = 0; v < V; v++) s[i][v] += x * y[v];
    }
  }
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) {
      float *at = c + i * c_row + v * LANES;
      store_some(at, load_some(at, n - v * LANES) + s[i][v], n - v * LANES);
    }
}

template <int V>
static inline void outer_rows(int m, int64_t rows, const float *a, int64_t a_row, const float *b,
                              int64_t b_row, int64_t n, float *c, int64_t c_row) {
  switch (m) {
    case 1: return outer_tile<1, V>(rows, a, a_row, b, b_row, n, c, c_row);
    case 2: return outer_tile<2, V>(rows, a, a_row, b, b_row, n, c, c_row);
    case 3: return outer_tile<3, V>(rows, a, a_row, b, b_row, n, c, c_row);
    case 4: return outer_tile<4, V>(rows, a, a_row, b, b_row, n, c, c_row);
    case 5: return outer_tile<5, V>(rows, a, a_row, b, b_row, n, c, c_row);
    case 6: return outer_tile<6, V>(rows, a, a_row, b, b_row, n, c, c_row);
#if !defined(__AVX2__) || defined(__AVX512F__)
    case 7: return outer_tile<7, V>(rows, a, a_row, b, b_row, n, c, c_row);
    case 8: return outer_tile<8, V>(rows, a, a_row, b, b_row, n, c, c_row);
#endif
#if defined(__AVX512F__)
    case 9: return outer_tile<9, V>(rows, a, a_row, b, b_row, n, c, c_row);
    case 10: return outer_tile<10, V>(rows, a, a_row, b, b_row, n, c, c_row);
    case 11: return outer_tile<11, V>(rows, a, a_row, b, b_row, n, c, c_row);
    case 12: return outer_tile<12, V>(rows, a, a_row, b, b_row, n, c, c_row);
#endif
  }
}

// Of so few rows a tile is wider, or its sums would be too few to add without waiting.
constexpr int FLAT_ROWS = 2, FLAT = 4;

// c [m, n] += a^T b; every row of b is followed by a panel's readable floats.
static inline void add_outer(int64_t rows, int64_t m, int64_t n, const float *a, int64_t a_row,
                             const float *b, int64_t b_row, float *c, int64_t c_row) {
  const int64_t tiles = (m + TILE_ROWS - 1) / TILE_ROWS, width = m <= FLAT_ROWS ? FLAT : 2;
  for (int64_t j = 0; j < n; j += width * LANES)
    for (int64_t t = 0; t < tiles; t++) {
      const int64_t i = m * t / tiles;
      const int own = (int)(m * (t + 1) / tiles - i);
      float *at = c + i * c_row + j;
      if (n - j <= LANES) outer_rows<1>(own, rows, a + i, a_row, b + j, b_row, n - j, at, c_row);
      else if (n - j <= 2 * LANES || width == 2)
        outer_rows<2>(own, rows, a + i, a_row, b + j, b_row, n - j, at, c_row);
      else if (own == 1) outer_tile<1, FLAT>(rows, a + i, a_row, b + j, b_row, n - j, at, c_row);
      else outer_tile<2, FLAT>(rows, a + i, a_row, b + j, b_row, n - j, at, c_row);
    }
}

// out [m] += the columns' sums of a [rows, m], each row times factor(row, column). Lanes of a behind m
// are read and unused.
template <class Factor>
static inline void add_column_sums(int64_t rows, int64_t m, const float *a, int64_t a_row, float *out,
                                   Factor factor) {
  int64_t j = 0;
  // Four vectors side by side: each adds up on its own, and memory is read in whole runs.
  for (; j + 3 * LANES < m; j += 4 * LANES) {
    Vec sums[4] = {};
    for (int64_t r = 0; r < rows; r++)
      for (int v = 0; v < 4; v++)
        sums[v] += load(a + r * a_row + j + v * LANES) * factor(r, j + v * LANES);
    for (int v = 0; v < 4; v++) {
      float *at = out + j + v * LANES;
      const int64_t left = m - j - v * LANES;
      store_some(at, load_some(at, left) + sums[v], left);
    }
  }
  for (; j < m; j += LANES) {
    Vec sums[4] = {};
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
      for (int i = 0; i < 4; i++) sums[i] += load(a + (r + i) * a_row + j) * factor(r + i, j);
    for (; r < rows; r++) sums[0] += load(a + r * a_row + j) * factor(r, j);
    const Vec sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    store_some(out + j, load_some(out + j, m - j) + sum, m - j);
  }
}
