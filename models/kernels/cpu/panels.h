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

// element(k, j) is the matrix's entry in row k and column j < columns. Entries are asked for along a
// column where DOWN, else along a row: whichever way their memory runs.
template <bool DOWN, class Element>
static inline Panels pack(int64_t depth, int64_t columns, float *out, Element element) {
  Panels panels{columns, depth, out};
  for (int64_t first = 0; first < padded(columns); first += PANEL) {
    const int64_t width = padded(columns) - first < PANEL ? LANES : PANEL;
    const int64_t real = columns - first < width ? columns - first : width;
    if (DOWN) {
      for (int64_t j = 0; j < real; j++)
        for (int64_t k = 0; k < depth; k++) out[k * width + j] = element(k, first + j);
    } else {
      for (int64_t k = 0; k < depth; k++)
        for (int64_t j = 0; j < real; j++) out[k * width + j] = element(k, first + j);
    }
    for (int64_t k = 0; k < depth && real < width; k++)
      memset(out + k * width + real, 0, (width - real) * 4);
    out += depth * width;
  }
  return panels;
}

// sums [M][V] += a [M, depth] * panel [depth, V * LANES]
template <int M, int V>
static void tile(const float *a, int64_t row, int64_t depth, const float *panel, Vec *sums) {
  Vec c[M][V];
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) c[i][v] = sums[i * V + v];
  for (int64_t k = 0; k < depth; k++, panel += V * LANES) {
    Vec b[V];
    for (int v = 0; v < V; v++) b[v] = load(panel + v * LANES);
#pragma GCC unroll 12
    for (int i = 0; i < M; i++) {
      Vec x = fill(a[i * row + k]);
      for (int v = 0; v < V; v++) c[i][v] += x * b[v];
    }
  }
  for (int i = 0; i < M; i++)
    for (int v = 0; v < V; v++) sums[i * V + v] = c[i][v];
}

template <int V>
static inline void tile_rows(int m, const float *a, int64_t row, int64_t depth, const float *panel,
                             Vec *sums) {
  switch (m) {
    case 1: return tile<1, V>(a, row, depth, panel, sums);
    case 2: return tile<2, V>(a, row, depth, panel, sums);
    case 3: return tile<3, V>(a, row, depth, panel, sums);
    case 4: return tile<4, V>(a, row, depth, panel, sums);
    case 5: return tile<5, V>(a, row, depth, panel, sums);
    case 6: return tile<6, V>(a, row, depth, panel, sums);
#if !defined(__AVX2__) || defined(__AVX512F__)
    case 7: return tile<7, V>(a, row, depth, panel, sums);
    case 8: return tile<8, V>(a, row, depth, panel, sums);
#endif
#if defined(__AVX512F__)
    case 9: return tile<9, V>(a, row, depth, panel, sums);
    case 10: return tile<10, V>(a, row, depth, panel, sums);
    case 11: return tile<11, V>(a, row, depth, panel, sums);
    case 12: return tile<12, V>(a, row, depth, panel, sums);
#endif
  }
}

// Sums of one panel, for up to TILE_ROWS rows: vector v of row i is sums[i * vectors + v].
struct Sums {
  Vec sums[TILE_ROWS * 2];
  int64_t column;  // of the panel's first
  int vectors;     // 1 or 2
  int rows;

  void zero() {
    for (int i = 0; i < rows * vectors; i++) sums[i] = (Vec){};
  }
  // sums += a [rows, depth] * the panel at this column
  void add(const float *a, int64_t row, const Panels &w) {
    if (vectors == 2) tile_rows<2>(rows, a, row, w.depth, w.at(column), sums);
    else tile_rows<1>(rows, a, row, w.depth, w.at(column), sums);
  }
  // f(vector, row, column) for every vector of the panel.
  template <class F> void each(F f) {
    for (int i = 0; i < rows; i++)
      for (int v = 0; v < vectors; v++) f(sums[i * vectors + v], i, column + v * LANES);
  }
};

// f(sums) for every panel of `columns` columns.
template <class F> static inline void for_panels(int rows, int64_t columns, F f) {
  Sums s;
  s.rows = rows;
  for (int64_t j = 0; j < padded(columns); j += PANEL) {
    s.column = j;
    s.vectors = padded(columns) - j < PANEL ? 1 : 2;
    f(s);
  }
}

// out [rows, columns] = a [rows, depth] * w; columns in memory are padded where `whole` says so.
static inline void multiply(int rows, const float *a, int64_t a_row, const Panels &w, float *out,
                            int64_t out_row, bool whole) {
  for_panels(rows, w.columns, [&](Sums &s) {
    s.zero();
    s.add(a, a_row, w);
    s.each([&](Vec v, int i, int64_t j) {
      if (whole) store(out + i * out_row + j, v);
      else store_some(out + i * out_row + j, v, w.columns - j);
    });
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
