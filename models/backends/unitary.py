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
            addends=call.inputs.projections().unsqueeze(0),
            phases=parts.phases,
            reflections=parts.reflections,
            order=parts.order.unsqueeze(0),
            bias=bias.unsqueeze(0),
            h0=call.state.unsqueeze(0),
        )
        lengths = None if call.lengths is None else call.lengths.unsqueeze(0)
        states, last = unitary_sequence(
            tensors, lengths, states=call.return_sequences, keep=call.learns()
        )
        return (states.squeeze(0) if call.return_sequences else states), (last.squeeze(0),)
