"""Our kernels on the CPU: matrices as a whole, thin, or of rotations, in single precision."""

import torch
from torch import Tensor

from models.backends.call import SequenceCall, State
from models.backends.tensors import tensors_of
from models.forms import Matrices
from models.kernels.calls import Packed
from models.kernels.choice import Backend, kernels_are_built
from models.kernels.sequence import sequence
from models.math.activations import modulus


class CppKernels:
    """See `models/kernels`."""

    name: Backend = "cpp"

    def takes(self, call: SequenceCall) -> bool:
        """What has a kernel's name, on the CPU in single precision."""
        return (
            call.kind is not None
            and isinstance(call.form.parts(), Matrices)
            and call.state.device.type == "cpu"
            and call.state.dtype == torch.float32
            and kernels_are_built()
        )

    def run(self, call: SequenceCall) -> tuple[Tensor, State]:
        """Run all steps in one call."""
        kind = call.kind
        assert kind is not None
        lengths = None if call.lengths is None else call.lengths.unsqueeze(0)
        states, _, last_h, last_c = sequence(
            kind,
            tensors_of(call),
            lengths,
            keep=call.return_sequences or call.learns(),
            learns=call.learns(),
            packed=call.packed,
        )
        last: State = (last_h[0],) if len(call.initial) == 1 else (last_h[0], last_c[0])
        if not call.return_sequences:
            return states, last
        # A view forth and back: the gradient of a selection is a copy among zeros.
        states = states.squeeze(0)
        return modulus(states) if kind.activation == "abs" else states, last

    def pack(self, call: SequenceCall) -> Packed:
        """The call's matrices in the kernels' own order; of the rest only sizes matter."""
        assert call.kind is not None
        return Packed(call.kind, tensors_of(call))
