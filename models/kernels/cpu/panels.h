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

// c [m, n] += a^T b with a [rows, m] and b [rows, n]; lanes of b behind n are loaded and unused.
template <int M>
static void outer_tile(int64_t rows, const float *a, int64_t a_row, const float *b, int64_t b_row,
                       int64_t n, float *c, int64_t c_row) {
  Vec s[M][2];
  for (int i = 0; i < M; i++) s[i][0] = s[i][1] = (Vec){};
  bool two = n > LANES;
  for (int64_t r = 0; r < rows; r++) {
    Vec b0 = load(b + r * b_row), b1 = two ? load(b + r * b_row + LANES) : (Vec){};
#pragma GCC unroll 12
    for (int i = 0; i < M; i++) {
      Vec x = fill(a[r * a_row + i]);
      s[i][0] += x * b0;
      s[i][1] += x * b1;
    }
  }
  for (int i = 0; i < M; i++) {
    float *row = c + i * c_row;
    store_some(row, load_some(row, n) + s[i][0], n);
    if (two) store_some(row + LANES, load_some(row + LANES, n - LANES) + s[i][1], n - LANES);
  }
}

// What large tiles leave of 32 rows, a common rank, where registers hold so many.
constexpr int TAIL_ROWS = TILE_ROWS > 8 ? 8 : 4;

// c [m, n] += a^T b; every row of b is followed by LANES readable floats.
static inline void add_outer(int64_t rows, int64_t m, int64_t n, const float *a, int64_t a_row,
                             const float *b, int64_t b_row, float *c, int64_t c_row) {
  for (int64_t j = 0; j < n; j += PANEL) {
    int64_t i = 0;
    for (; i + TILE_ROWS <= m; i += TILE_ROWS)
      outer_tile<TILE_ROWS>(rows, a + i, a_row, b + j, b_row, n - j, c + i * c_row + j, c_row);
    for (; i + TAIL_ROWS <= m; i += TAIL_ROWS)
      outer_tile<TAIL_ROWS>(rows, a + i, a_row, b + j, b_row, n - j, c + i * c_row + j, c_row);
    for (; i + 4 <= m; i += 4)
      outer_tile<4>(rows, a + i, a_row, b + j, b_row, n - j, c + i * c_row + j, c_row);
    for (; i < m; i++)
      outer_tile<1>(rows, a + i, a_row, b + j, b_row, n - j, c + i * c_row + j, c_row);
  }
}

// out [m] += the columns' sums of a [rows, m], each row times factor(row, column); entries of `out`
// are `step` apart.
template <class Factor>
static inline void add_column_sums(int64_t rows, int64_t m, const float *a, int64_t a_row, float *out,
                                   int64_t step, Factor factor) {
  for (int64_t j = 0; j < m; j += LANES) {
    // Four chains of sums, or each addition would wait for the one before.
    Vec sums[4] = {};
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
      for (int i = 0; i < 4; i++) sums[i] += load(a + (r + i) * a_row + j) * factor(r + i, j);
    for (; r < rows; r++) sums[0] += load(a + r * a_row + j) * factor(r, j);
    const Vec sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int i = 0; i < LANES && j + i < m; i++) out[(j + i) * step] += sum[i];
  }
}
