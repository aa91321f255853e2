// The C interface of the sequence kernels: all tensors are float32, contiguous but for the strides
// that are named, and laid out as the comments say. M models of equal shape run side by side.
//
// A stack of layers is a sequence whose steps are the layers, each with weights of its own: wherever
// below a tensor of weights is [M, ...], that of a stack is [M, T, ...]. It has neither x nor addends.
#pragma once
#include <stdint.h>

// Recurrent cells, then layers of a stack. Residual layers add, at every second one, what the one
// before it read; highway layers have two gates, h and tau.
enum Cell { RNN, GRU_RESET_BEFORE, GRU_RESET_AFTER, LSTM, PLAIN_LAYERS, RESIDUAL_LAYERS, HIGHWAY_LAYERS };

struct Shape {
  int64_t models, steps, batch, size, inputs;  // M, T, B, n, I
  int64_t biases;   // of each gate: 0, 1 of the input's product, or 2 with one of the state's
  int64_t rank;     // d of diagonal plus low rank; 0 for dense matrices
  int64_t num_right;  // right factors: one for each gate, or 1 that all gates share
  int64_t u_stages, v_stages;  // K_u, K_v of packed rotations; 0 for other matrices
  int64_t cell, activation;
  int64_t threads;
  int64_t x_model, x_step, x_row;  // strides of x, in floats
  float slope;
};

// G = 1, 3 (update, reset, candidate) or 4 (input, forget, candidate, output) gates.
struct Arguments {
  const float *x;          // [M, T, B, I] by strides; null where `addends` are given
  const float *addends;    // [M, T, B, G n], what the inputs add; null where x is given
  const float *w_in;       // [M, G, n, I]
  const float *bias;       // [M, biases, G, n] or null
  const float *weight;     // [M, G, n, n] or null
  const float *left;       // [M, G, n, d] or null
  const float *right;      // [M, num_right, d, n] or null
  const float *diagonal;   // [M, G, n] or null
  const float *h0;         // [M, B, n]
  const float *c0;         // [M, B, n], LSTM only
  // W = U diag(diagonal) V^T of packed rotations: cosines and sines of U's signed angles
  // [2, M, G, K_u, n], and of V's; v_turns and the diagonal may be null
  const float *u_turns, *v_turns;
  const int64_t *lengths;  // [M, B], at least 1 each, or null: a state stays after its length
  float *states;           // [M, T, B, n] or null: h_t, but the inner z_t where h_t = |z_t|
  float *cells;            // [M, T, B, n] or null: c_t, LSTM only
  float *last_h;           // [M, B, n]
  float *last_c;           // [M, B, n], LSTM only
  // What a recurrent cell's backward pass computes again where it is null: its gates, and what thin
  // factors made of their vectors. Room for 3 (GRU that resets before) or 4 rows of n for each step of
  // a sample, none of a plain RNN, and for those products, each rounded up to 16 floats, and 32 floats
  // behind each model's; the order in it is the kernels' own. Null of packed rotations.
  float *kept;
};

// What arrives (null: nothing), and where what is wanted is written (null: not wanted).
struct Gradients {
  const float *states, *cells, *last_h, *last_c;
  float *x;  // [M, T, B, I] contiguous
  float *addends;
  float *w_in, *bias, *weight, *left, *right, *diagonal;  // zeros before the call
  float *h0, *c0;
  float *u_turns, *v_turns;  // of the angles [M, G, K, n]; zeros before the call
};

struct Packed;  // weights in the order in which the kernels read them

extern "C" {
// Null where memory ran out. Of the arguments the weights and biases are read, and not needed again.
Packed *sequence_pack(const Shape *shape, const Arguments *arguments);
void sequence_unpack(Packed *packed);

// 0, or 1 where memory ran out. Weights are packed in the call where `packed` is null.
int sequence_forward(const Shape *shape, const Arguments *arguments, const Packed *packed);
int sequence_backward(const Shape *shape, const Arguments *arguments, const Gradients *gradients);

// h0 is what the first layer reads, last_h what the last one gives, and `states` all layers' results.
int stack_forward(const Shape *shape, const Arguments *arguments);
int stack_backward(const Shape *shape, const Arguments *arguments, const Gradients *gradients);
}
