"""Our kernel of the uRNN with matrices of Fourier transforms, on the CPU in single precision."""

import torch
from torch import Tensor

from models.backends.call import SequenceCall, State
from models.forms import Fourier
from models.kernels.choice import Backend, kernels_are_built
from models.kernels.unitary import UnitaryTensors, transforms, unitary_sequence


class UnitaryKernel:
    """See `models/kernels/unitary.py`."""

    name: Backend = "cpp"

    def takes(self, call: SequenceCall) -> bool:
        """What rescales complex states, where there is a transform of their length."""
        return (
            call.rescaling is not None
            and isinstance(call.form.parts(), Fourier)
            and call.form.bias() is None
            and call.state.device.type == "cpu"
            and call.state.dtype == torch.float32
            and transforms(call.rescaling.shape[0])
            and kernels_are_built()
        )

    def run(self, call: SequenceCall) -> tuple[Tensor, State]:
        """Run all steps in one call."""
        parts, bias = call.form.parts(), call.rescaling
        assert isinstance(parts, Fourier)
        assert bias is not None
        tensors = UnitaryTensors(
            addends=call.inputs.projections(),
            phases=parts.phases[0],
            reflections=parts.reflections[0],
            order=parts.order,
            bias=bias,
            h0=call.state,
        )
        states, last = unitary_sequence(
            tensors, call.lengths, states=call.return_sequences, keep=call.learns()
        )
        return states, (last,)
