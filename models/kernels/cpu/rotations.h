// The C interface of products of packed rotations. G matrices of size n, each a product of K stages;
// tensors are contiguous, and of T, float or double, which the functions are named after.
#pragma once
#include <stdint.h>

struct RotationShape {
  int64_t copies, stages, size;  // G, K, n
  int64_t threads;
};

template <class T> struct RotationArguments {
  const T *cos, *sin;        // [G, K, n]; the sines of a pair have opposite signs
  const int64_t *partners;   // [K, n]; a coordinate that is alone is its own partner
  T *product;                // [G, n, n]; read by the backward pass
};

extern "C" {
// 0, or 1 where memory ran out.
int rotations_forward_float(const RotationShape *, const RotationArguments<float> *);
int rotations_forward_double(const RotationShape *, const RotationArguments<double> *);
// From dL / d(product) [G, n, n] to dL / d(angles) [G, K, n].
int rotations_backward_float(const RotationShape *, const RotationArguments<float> *,
                             const float *gradient, float *angles);
int rotations_backward_double(const RotationShape *, const RotationArguments<double> *,
                              const double *gradient, double *angles);
}
