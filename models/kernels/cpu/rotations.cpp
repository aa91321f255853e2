// Products of packed rotations (eq. 7 and 8 of ops/README.md): a few columns of the matrix go through
// all stages at once, and never leave the innermost cache on the way.
#include <atomic>

#include "rotations.h"
#include "threads.h"

namespace {

constexpr int WIDTH = 2 * LANES;

// WIDTH columns of an n x n matrix, row after row.
struct Columns {
  float *data;
  float *row(int64_t i) const { return data + i * WIDTH; }

  void read(const float *matrix, int64_t n, int64_t first) const {
    for (int64_t i = 0; i < n; i++)
      for (int v = 0; v < 2; v++)
        store(row(i) + v * LANES, load_some(matrix + i * n + first + v * LANES, n - first - v * LANES));
  }
  void write(float *matrix, int64_t n, int64_t first) const {
    for (int64_t i = 0; i < n; i++)
      for (int v = 0; v < 2; v++)
        store_some(matrix + i * n + first + v * LANES, load(row(i) + v * LANES), n - first - v * LANES);
  }
  void read_identity(int64_t n, int64_t first) const {
    memset(data, 0, n * WIDTH * 4);
    for (int64_t j = first; j < n && j < first + WIDTH; j++) row(j)[j - first] = 1;
  }
  // y_a = c x_a + s x_b, y_b = c x_b - s x_a
  void turn(int64_t a, int64_t b, float c, float s) const {
    for (int v = 0; v < WIDTH; v += LANES) {
      Vec x = load(row(a) + v), y = load(row(b) + v);
      store(row(a) + v, c * x + s * y);
      store(row(b) + v, c * y - s * x);
    }
  }
};

float inner_product(const float *a, const float *b) {
  return sum_of(load(a) * load(b) + load(a + LANES) * load(b + LANES));
}

struct Product {
  const RotationShape &s;
  const RotationArguments &a;
  int64_t copy;

  float *matrix() const { return a.product + copy * s.size * s.size; }
  // f(a, b, cos, sin, place of a's angle) for every pair a < b of a stage, and for a coordinate that
  // is alone with itself.
  template <class F> void pairs(int64_t stage, F f) const {
    const int64_t *partners = a.partners + stage * s.size, first = (copy * s.stages + stage) * s.size;
    for (int64_t i = 0; i < s.size; i++)
      if (partners[i] >= i) f(i, partners[i], a.cos[first + i], a.sin[first + i], first + i);
  }

  void forward(Arena &arena) const {
    const Columns x{arena.take(s.size * WIDTH)};
    for (int64_t first = 0; first < s.size; first += WIDTH) {
      x.read_identity(s.size, first);
      for (int64_t stage = 0; stage < s.stages; stage++)
        pairs(stage, [&](int64_t i, int64_t j, float cos, float sin, int64_t) {
          if (i != j) x.turn(i, j, cos, sin);
        });
      x.write(matrix(), s.size, first);
    }
  }

  // Rotations can be undone: the stages are walked back from the product.
  void backward(const float *gradient, float *angles, Arena &arena) const {
    const Columns y{arena.take(s.size * WIDTH)}, g{arena.take(s.size * WIDTH)};
    memset(angles + copy * s.stages * s.size, 0, s.stages * s.size * 4);
    for (int64_t first = 0; first < s.size; first += WIDTH) {
      y.read(matrix(), s.size, first);
      g.read(gradient + copy * s.size * s.size, s.size, first);
      for (int64_t stage = s.stages - 1; stage >= 0; stage--)
        pairs(stage, [&](int64_t i, int64_t j, float cos, float sin, int64_t place) {
          angles[place] += inner_product(g.row(i), y.row(j));
          if (i == j) return;
          angles[place + j - i] += inner_product(g.row(j), y.row(i));
          y.turn(i, j, cos, -sin);
          g.turn(i, j, cos, -sin);
        });
    }
  }
};

template <class Work> int over_copies(const RotationShape &s, Work work) {
  std::atomic<int> failed{0};
  const double each = double(s.stages) * s.size * s.size;
  const int64_t most = std::min({s.threads, s.copies, int64_t(each * s.copies / 4e6) + 1});
  in_parallel(std::max<int64_t>(1, most), s.copies, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t copy = begin; copy < end; copy++) {
      tile_arena.reset(2 * Arena::rounded(s.size * WIDTH));
      if (tile_arena.failed()) { failed = 1; return; }
      work(copy, tile_arena);
    }
  });
  return failed;
}

}  // namespace

int rotations_forward(const RotationShape *shape, const RotationArguments *arguments) {
  return over_copies(*shape, [&](int64_t copy, Arena &arena) {
    Product{*shape, *arguments, copy}.forward(arena);
  });
}

int rotations_backward(const RotationShape *shape, const RotationArguments *arguments,
                       const float *gradient, float *angles) {
  return over_copies(*shape, [&](int64_t copy, Arena &arena) {
    Product{*shape, *arguments, copy}.backward(gradient, angles, arena);
  });
}
