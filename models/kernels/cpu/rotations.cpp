// Products of packed rotations (eq. 7 and 8 of ops/README.md): a few columns of the matrix go through
// all stages at once, and never leave the innermost cache on the way.
#include "rotations.h"

#include <type_traits>

#include "copies.h"

namespace {

// Numbers in a vector, and columns that go through the stages side by side.
template <class T> constexpr int64_t LANES_OF = LANES * sizeof(float) / sizeof(T);
template <class T> constexpr int64_t WIDTH = 2 * LANES_OF<T>;
template <class T>
using VecOf __attribute__((vector_size(LANES * sizeof(float)), aligned(4), may_alias)) = T;

template <class T> VecOf<T> &vector_at(T *p) { return *(VecOf<T> *)p; }

// WIDTH columns of an n x n matrix, row after row.
template <class T> struct Columns {
  // What they take of an arena, in floats.
  static int64_t room(int64_t n) { return n * 2 * LANES; }

  T *data;
  explicit Columns(Arena &arena, int64_t n) : data((T *)arena.take(room(n))) {}
  T *row(int64_t i) const { return data + i * WIDTH<T>; }

  void read(const T *matrix, int64_t n, int64_t first) const {
    if (n - first >= WIDTH<T>) {
      for (int64_t i = 0; i < n; i++) memcpy(row(i), matrix + i * n + first, WIDTH<T> * sizeof(T));
      return;
    }
    memset(data, 0, n * WIDTH<T> * sizeof(T));
    for (int64_t i = 0; i < n; i++) memcpy(row(i), matrix + i * n + first, (n - first) * sizeof(T));
  }
  void write(T *matrix, int64_t n, int64_t first) const {
    const int64_t count = std::min(WIDTH<T>, n - first);
    for (int64_t i = 0; i < n; i++) memcpy(matrix + i * n + first, row(i), count * sizeof(T));
  }
  void read_identity(int64_t n, int64_t first) const {
    memset(data, 0, n * WIDTH<T> * sizeof(T));
    for (int64_t j = first; j < n && j < first + WIDTH<T>; j++) row(j)[j - first] = 1;
  }
  // y_a = c x_a + s x_b, y_b = c x_b - s x_a
  void turn(int64_t a, int64_t b, T c, T s) const {
    for (int64_t v = 0; v < WIDTH<T>; v += LANES_OF<T>) {
      const VecOf<T> x = vector_at(row(a) + v), y = vector_at(row(b) + v);
      vector_at(row(a) + v) = c * x + s * y;
      vector_at(row(b) + v) = c * y - s * x;
    }
  }
};

template <class T> T inner_product(T *a, T *b) {
  constexpr int64_t next = LANES_OF<T>;
  const VecOf<T> products = vector_at(a) * vector_at(b) + vector_at(a + next) * vector_at(b + next);
  if constexpr (std::is_same_v<T, float>) return sum_of((Vec)products);
  T total = 0;
  for (int64_t i = 0; i < next; i++) total += products[i];
  return total;
}

template <class T> struct Product {
  const RotationShape &s;
  const RotationArguments<T> &a;
  int64_t copy;

  T *matrix() const { return a.product + copy * s.size * s.size; }
  // f(a, b, cos, sin, place of a's angle) for every pair a < b of a stage, and for a coordinate that
  // is alone with itself.
  template <class F> void pairs(int64_t stage, F f) const {
    const int64_t *partners = a.partners + stage * s.size, first = (copy * s.stages + stage) * s.size;
    for (int64_t i = 0; i < s.size; i++)
      if (partners[i] >= i) f(i, partners[i], a.cos[first + i], a.sin[first + i], first + i);
  }

  void forward(Arena &arena) const {
    const Columns<T> x(arena, s.size);
    for (int64_t first = 0; first < s.size; first += WIDTH<T>) {
      x.read_identity(s.size, first);
      for (int64_t stage = 0; stage < s.stages; stage++)
        pairs(stage, [&](int64_t i, int64_t j, T cos, T sin, int64_t) {
          if (i != j) x.turn(i, j, cos, sin);
        });
      x.write(matrix(), s.size, first);
    }
  }

  // Rotations can be undone: the stages are walked back from the product.
  void backward(const T *gradient, T *angles, Arena &arena) const {
    const Columns<T> y(arena, s.size), g(arena, s.size);
    memset(angles + copy * s.stages * s.size, 0, s.stages * s.size * sizeof(T));
    for (int64_t first = 0; first < s.size; first += WIDTH<T>) {
      y.read(matrix(), s.size, first);
      g.read(gradient + copy * s.size * s.size, s.size, first);
      for (int64_t stage = s.stages - 1; stage >= 0; stage--)
        pairs(stage, [&](int64_t i, int64_t j, T cos, T sin, int64_t place) {
          angles[place] += inner_product(g.row(i), y.row(j));
          if (i == j) return;
          angles[place + j - i] += inner_product(g.row(j), y.row(i));
          y.turn(i, j, cos, -sin);
          g.turn(i, j, cos, -sin);
        });
    }
  }
};

template <class T> int forward(const RotationShape &s, const RotationArguments<T> &arguments) {
  return over_copies(s, Arena::rounded(Columns<T>::room(s.size)), [&](int64_t copy, Arena &arena) {
    Product<T>{s, arguments, copy}.forward(arena);
  });
}

template <class T>
int backward(const RotationShape &s, const RotationArguments<T> &arguments, const T *gradient,
             T *angles) {
  const int64_t room = 2 * Arena::rounded(Columns<T>::room(s.size));
  return over_copies(s, room, [&](int64_t copy, Arena &arena) {
    Product<T>{s, arguments, copy}.backward(gradient, angles, arena);
  });
}

}  // namespace

int rotations_forward_float(const RotationShape *s, const RotationArguments<float> *a) {
  return forward(*s, *a);
}
int rotations_forward_double(const RotationShape *s, const RotationArguments<double> *a) {
  return forward(*s, *a);
}
int rotations_backward_float(const RotationShape *s, const RotationArguments<float> *a,
                             const float *gradient, float *angles) {
  return backward(*s, *a, gradient, angles);
}
int rotations_backward_double(const RotationShape *s, const RotationArguments<double> *a,
                              const double *gradient, double *angles) {
  return backward(*s, *a, gradient, angles);
}
