// Runs one sequence forward and backward with a library for another processor, under an emulator.
//
// Reads the shape, then each tensor of `Arguments` as `read_tensor` takes it (a count of 0 is a null
// pointer). Writes states, last h, last c, and the gradients of the sum of all states
// and of the last ones by each tensor that was given. Of the states there is no `abs` kind here.
#include "../../../models/kernels/cpu/tile.h"
#include "emulated.h"

int main() {
  Shape shape;
  if (fread(&shape, sizeof shape, 1, stdin) != 1) return 2;
  const bool has_cell = shape.cell == LSTM;
  Arguments arguments = {};
  const float **tensors[] = {&arguments.x, &arguments.addends, &arguments.w_in, &arguments.bias,
                             &arguments.weight, &arguments.left, &arguments.right, &arguments.diagonal, &arguments.h0, &arguments.c0,
                             &arguments.u_turns, &arguments.v_turns};
  Gradients gradients = {};
  float **wanted[] = {&gradients.x, &gradients.addends, &gradients.w_in, &gradients.bias,
                      &gradients.weight, &gradients.left, &gradients.right, &gradients.diagonal, &gradients.h0, &gradients.c0,
                      &gradients.u_turns, &gradients.v_turns};
  constexpr int count = sizeof tensors / sizeof *tensors, turns = count - 2;
  std::vector<Floats> given, found;
  given.reserve(count);
  found.reserve(count);
  for (int i = 0; i < count; i++) {
    given.push_back(read_tensor());
    // Of turns there are cosines and sines, and one gradient.
    found.push_back(Floats(given[i].size() / (i < turns ? 1 : 2), 0.f));
    *tensors[i] = given[i].empty() ? nullptr : given[i].data();
    *wanted[i] = given[i].empty() ? nullptr : found[i].data();
  }
  const int64_t last = shape.models * shape.batch * shape.size;
  Floats states(last * shape.steps), cells(has_cell ? states.size() : 0), h(last), c(has_cell ? last : 0);
  arguments.states = states.data();
  arguments.cells = has_cell ? cells.data() : nullptr;
  arguments.last_h = h.data();
  arguments.last_c = has_cell ? c.data() : nullptr;
  const Plan plan(shape);
  Floats kept(plan.turned ? 0 : shape.models * kept_floats(shape, plan));
  arguments.kept = kept.empty() ? nullptr : kept.data();
  if (sequence_forward(&shape, &arguments, nullptr)) return 3;
  const Floats ones(states.size(), 1.f);
  gradients.states = ones.data();
  gradients.last_h = ones.data();
  gradients.last_c = has_cell ? ones.data() : nullptr;
  if (sequence_backward(&shape, &arguments, &gradients)) return 3;
  write(states), write(h), write(c);
  for (const Floats &gradient : found) write(gradient);
  return 0;
}
