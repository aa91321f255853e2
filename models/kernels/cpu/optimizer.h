// The C interface of a step of an optimizer over all parameters of M members, each by rates of its own.
#pragma once
#include <stdint.h>

enum Optimizer { ADAM, RMSPROP, ADAGRAD, SGD };

struct OptimizerShape {
  int64_t members, tensors;  // M, P
  int64_t optimizer, threads;
};

// Tensors are [M, ...] and contiguous; none of those that are written shares memory with another.
struct OptimizerArguments {
  const int64_t *sizes;           // [P], the numbers that each member has of a tensor
  const double *scales;           // [P, M], of the learning rates, not of the decay
  const float *const *gradients;  // [P]
  float *const *parameters;       // [P]
  float *const *first;            // [P]: Adam's means of gradients, what others keep of their squares
  float *const *second;           // [P]: Adam's means of squares
  const double *learning_rate, *weight_decay;  // [M]
  const double *clip_value, *clip_norm;        // [M], infinite where nothing is clipped
  const double *recovery;  // [M], which times the parameters is the gradient of a norm that is not
                           // finite; NaN where a member then does not move
  double *norms;           // [M], of each member's gradients, clipped by value
  int64_t *steps;          // [P, M], that each member has taken with a tensor
};

extern "C" {
// Writes the norms; of the rest the sizes, the gradients and clip_value are read.
int optimizer_norms(const OptimizerShape *shape, const OptimizerArguments *arguments);
// Reads the norms, takes a step, and counts it.
int optimizer_update(const OptimizerShape *shape, const OptimizerArguments *arguments);
}
