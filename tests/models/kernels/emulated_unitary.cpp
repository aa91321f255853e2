// Runs one sequence of the uRNN forward and backward with a library for another processor.
//
// Reads the shape, then addends, turns, vectors, bias, h0, order and roots, each as `read_tensor` takes
// it. Writes the states, the last one, and the gradients of the sum of all and of the last ones.
#include "../../../models/kernels/cpu/unitary.h"

#include "emulated.h"

int main() {
  UnitaryShape shape;
  if (fread(&shape, sizeof shape, 1, stdin) != 1) return 2;
  const Floats addends = read_tensor(), turns = read_tensor(), vectors = read_tensor(), bias = read_tensor(),
               h0 = read_tensor();
  const std::vector<int64_t> order = read_tensor<int64_t>();
  const Floats roots = read_tensor(), ones(addends.size(), 1.f);
  Floats states(addends.size()), inner(addends.size()), last(h0.size());
  const UnitaryArguments arguments = {addends.data(), turns.data(), vectors.data(), bias.data(),
                                      h0.data(), order.data(), roots.data(), nullptr,
                                      states.data(), inner.data(), last.data()};
  if (unitary_forward(&shape, &arguments)) return 3;
  Floats found[] = {Floats(addends.size()), Floats(turns.size() / 2), Floats(vectors.size()),
                    Floats(bias.size()), Floats(h0.size())};
  const UnitaryGradients gradients = {ones.data(), ones.data(), found[0].data(), found[1].data(),
                                      found[2].data(), found[3].data(), found[4].data()};
  if (unitary_backward(&shape, &arguments, &gradients)) return 3;
  write(states), write(last);
  for (const Floats &gradient : found) write(gradient);
  return 0;
}
