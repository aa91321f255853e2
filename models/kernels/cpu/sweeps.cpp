// Sweeps over the stages of packed rotations, see models/compression/rotations.py. A stage walks over the matrix
// once: two rows at a time lose the stage's old rotations from their columns, show the pair's best
// angle, and are turned by it.
#include "sweeps.h"

#include <cmath>

#include "copies.h"

namespace {

struct Sweep {
  int64_t n;
  const int64_t *partners;
  double *matrix, *angles, *cos, *sin, *first, *second;

  // A row of C P^T: y_i = cos_i x_i + sin_i x_partner(i)
  void turn_columns(const double *row, double *__restrict turned) const {
    for (int64_t i = 0; i < n; i++) turned[i] = cos[i] * row[i] + sin[i] * row[partners[i]];
  }

  void turn_rows(double *__restrict row_a, double *__restrict row_b, double c, double s) const {
    for (int64_t i = 0; i < n; i++) {
      row_a[i] = c * first[i] + s * second[i];
      row_b[i] = c * second[i] - s * first[i];
    }
  }

  void stage() const {
    for (int64_t i = 0; i < n; i++) {
      cos[i] = std::cos(angles[i]);
      sin[i] = std::sin(angles[i]);
    }
    for (int64_t a = 0; a < n; a++) {
      const int64_t b = partners[a];
      if (b < a) continue;
      double *row_a = matrix + a * n, *row_b = matrix + b * n;
      turn_columns(row_a, first);
      if (b == a) {
        memcpy(row_a, first, n * sizeof(double));
        continue;
      }
      turn_columns(row_b, second);
      const double angle = std::atan2(second[a] - first[b], first[a] + second[b]);
      turn_rows(row_a, row_b, std::cos(angle), std::sin(angle));
      angles[a] = angle;
      angles[b] = -angle;
    }
  }
};

}  // namespace

int rotations_sweep(const RotationShape *shape, const int64_t *partners, double *matrices,
                    double *angles) {
  const RotationShape &s = *shape;
  return over_copies(s, 4 * Arena::rounded(2 * s.size), [&](int64_t copy, Arena &arena) {
    double *room[4];
    for (double *&row : room) row = (double *)arena.take(2 * s.size);
    for (int64_t k = 0; k < s.stages; k++)
      Sweep{s.size, partners + k * s.size, matrices + copy * s.size * s.size,
            angles + (copy * s.stages + k) * s.size, room[0], room[1], room[2], room[3]}
          .stage();
  });
}
