// The C interface of the singular value decompositions by reflectors. All tensors are float32 and
// contiguous; G square matrices of size n, with m1 reflectors on the left and m2 on the right.
#pragma once
#include <stdint.h>

struct SvdShape {
  int64_t copies, size, u_count, v_count;  // G, n, m1, m2
  int64_t threads;
};

struct SvdArguments {
  const float *u;      // [G, m1, n], rows of any length; a row of zeros is no reflection
  const float *v;      // [G, m2, n], alike
  const float *sigma;  // [G, n]
  float *left;         // [G, n, m2 + m1]
  float *right;        // [G, m2 + m1, n]
  float *weight;       // [G, n, n], the matrix as a whole in place of both; or null
};

struct SvdGradients {
  const float *left, *right, *weight;  // the weight's, or those of both factors
  float *u, *v, *sigma;
};

extern "C" {
// 0, or 1 where memory ran out.
int svd_factors_forward(const SvdShape *shape, const SvdArguments *arguments);
int svd_factors_backward(const SvdShape *shape, const SvdArguments *arguments, const SvdGradients *gradients);
}
