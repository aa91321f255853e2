// The C interface of the uRNN with matrices of Fourier transforms. Tensors are contiguous; vectors of
// n complex numbers are kept as (re | im), 2 n floats. M models of equal shape run side by side.
#pragma once
#include <stdint.h>

struct UnitaryShape {
  int64_t models, steps, batch, size;  // M, T, B, n
  int64_t threads;
};

struct UnitaryArguments {
  const float *addends;    // [M, T, B, 2 n], what the inputs add
  const float *turns;      // [2, M, 3, n], cosines and sines of the phases of D_1, D_2, D_3
  const float *vectors;    // [M, 2, 2 n] of the reflections R_1 and R_2, of any length; 0 is the identity
  const float *bias;       // [M, n], of the rescaling
  const float *h0;         // [M, B, 2 n]
  const int64_t *order;    // [M, n]: Pi takes coordinate order[j] to place j
  const float *roots;      // [2, n], cosines and sines of 2 pi k / n
  const int64_t *lengths;  // [M, B], at least 1 each, or null: a state stays after its length
  float *states;           // [M, T, B, 2 n] or null: h_t
  float *inner;            // [M, T, B, 2 n] or null: what is rescaled, which the backward pass needs
  float *last_h;           // [M, B, 2 n]
};

// What arrives (null: nothing), and where what is wanted is written (null: not wanted).
struct UnitaryGradients {
  const float *states, *last_h;
  float *addends, *phases, *vectors, *bias, *h0;  // phases [M, 3, n]
};

extern "C" {
// 0, or 1 where memory ran out.
int unitary_forward(const UnitaryShape *shape, const UnitaryArguments *arguments);
int unitary_backward(const UnitaryShape *shape, const UnitaryArguments *arguments,
                     const UnitaryGradients *gradients);
}
