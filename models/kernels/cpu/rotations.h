// The C interface of products of packed rotations. G matrices of size n, each a product of K stages;
// tensors are float32 and contiguous.
#pragma once
#include <stdint.h>

struct RotationShape {
  int64_t copies, stages, size;  // G, K, n
  int64_t threads;
};

struct RotationArguments {
  const float *cos, *sin;    // [G, K, n]; the sines of a pair have opposite signs
  const int64_t *partners;   // [K, n]; a coordinate that is alone is its own partner
  float *product;            // [G, n, n]; read by the backward pass
};

extern "C" {
// 0, or 1 where memory ran out.
int rotations_forward(const RotationShape *shape, const RotationArguments *arguments);
// From dL / d(product) [G, n, n] to dL / d(angles) [G, K, n].
int rotations_backward(const RotationShape *shape, const RotationArguments *arguments,
                       const float *gradient, float *angles);
}
