// The sizes and offsets of the structs that Python fills, and the enums, for it to compare.
#include <stddef.h>

#include "optimizer.h"
#include "reflectors.h"
#include "rotations.h"
#include "sequence.h"
#include "unitary.h"
#include "vector.h"

#define AT(type, field) (int64_t) offsetof(type, field)

using Rotations = RotationArguments<float>;
static_assert(sizeof(Rotations) == sizeof(RotationArguments<double>), "of pointers alone");

static const int64_t layout[] = {
    sizeof(Shape),
    AT(Shape, models), AT(Shape, steps), AT(Shape, batch), AT(Shape, size), AT(Shape, inputs),
    AT(Shape, biases), AT(Shape, rank), AT(Shape, num_right), AT(Shape, u_stages), AT(Shape, v_stages),
    AT(Shape, cell), AT(Shape, activation),
    AT(Shape, threads), AT(Shape, x_model), AT(Shape, x_step), AT(Shape, x_row), AT(Shape, slope),
    sizeof(Arguments),
    AT(Arguments, x), AT(Arguments, addends), AT(Arguments, w_in), AT(Arguments, bias),
    AT(Arguments, weight), AT(Arguments, left), AT(Arguments, right), AT(Arguments, diagonal),
    AT(Arguments, h0), AT(Arguments, c0),
    AT(Arguments, u_turns), AT(Arguments, v_turns),
    AT(Arguments, lengths), AT(Arguments, states), AT(Arguments, cells), AT(Arguments, last_h),
    AT(Arguments, last_c), AT(Arguments, kept),
    sizeof(Gradients),
    AT(Gradients, states), AT(Gradients, cells), AT(Gradients, last_h), AT(Gradients, last_c),
    AT(Gradients, x), AT(Gradients, addends), AT(Gradients, w_in), AT(Gradients, bias),
    AT(Gradients, weight), AT(Gradients, left), AT(Gradients, right), AT(Gradients, diagonal),
    AT(Gradients, h0), AT(Gradients, c0),
    AT(Gradients, u_turns), AT(Gradients, v_turns),
    sizeof(SvdShape),
    AT(SvdShape, copies), AT(SvdShape, size), AT(SvdShape, u_count), AT(SvdShape, v_count),
    AT(SvdShape, threads),
    sizeof(SvdArguments),
    AT(SvdArguments, u), AT(SvdArguments, v), AT(SvdArguments, sigma), AT(SvdArguments, left),
    AT(SvdArguments, right), AT(SvdArguments, weight),
    sizeof(SvdGradients),
    AT(SvdGradients, left), AT(SvdGradients, right), AT(SvdGradients, weight), AT(SvdGradients, u), AT(SvdGradients, v),
    AT(SvdGradients, sigma),
    sizeof(RotationShape),
    AT(RotationShape, copies), AT(RotationShape, stages), AT(RotationShape, size),
    AT(RotationShape, threads),
    sizeof(Rotations),
    AT(Rotations, cos), AT(Rotations, sin), AT(Rotations, partners), AT(Rotations, product),
    sizeof(UnitaryShape),
    AT(UnitaryShape, models), AT(UnitaryShape, steps), AT(UnitaryShape, batch), AT(UnitaryShape, size),
    AT(UnitaryShape, threads),
    sizeof(UnitaryArguments),
    AT(UnitaryArguments, addends), AT(UnitaryArguments, turns), AT(UnitaryArguments, vectors),
    AT(UnitaryArguments, bias), AT(UnitaryArguments, h0), AT(UnitaryArguments, order),
    AT(UnitaryArguments, roots), AT(UnitaryArguments, lengths), AT(UnitaryArguments, states),
    AT(UnitaryArguments, inner), AT(UnitaryArguments, last_h),
    sizeof(UnitaryGradients),
    AT(UnitaryGradients, states), AT(UnitaryGradients, last_h), AT(UnitaryGradients, addends),
    AT(UnitaryGradients, phases), AT(UnitaryGradients, vectors), AT(UnitaryGradients, bias),
    AT(UnitaryGradients, h0),
    sizeof(OptimizerShape),
    AT(OptimizerShape, members), AT(OptimizerShape, tensors), AT(OptimizerShape, optimizer),
    AT(OptimizerShape, threads),
    sizeof(OptimizerArguments),
    AT(OptimizerArguments, sizes), AT(OptimizerArguments, scales), AT(OptimizerArguments, gradients),
    AT(OptimizerArguments, parameters), AT(OptimizerArguments, first), AT(OptimizerArguments, second),
    AT(OptimizerArguments, learning_rate), AT(OptimizerArguments, weight_decay),
    AT(OptimizerArguments, clip_value), AT(OptimizerArguments, clip_norm),
    AT(OptimizerArguments, recovery), AT(OptimizerArguments, norms), AT(OptimizerArguments, steps),
    RNN, GRU_RESET_BEFORE, GRU_RESET_AFTER, LSTM, PLAIN_LAYERS, RESIDUAL_LAYERS, HIGHWAY_LAYERS,
    TANH, RELU, LEAKY_RELU, ABS, IDENTITY,
    ADAM, RMSPROP, ADAGRAD, SGD,
};

extern "C" {
// How many numbers there are; the first `room` of them are written.
int64_t kernels_layout(int64_t *found, int64_t room);
}

int64_t kernels_layout(int64_t *found, int64_t room) {
  const int64_t count = sizeof(layout) / sizeof(*layout);
  for (int64_t i = 0; i < count && i < room; i++) found[i] = layout[i];
  return count;
}
