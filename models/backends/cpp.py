"""Our kernels on the CPU: matrices as a whole, thin, or of rotations, in single precision."""

import torch
from torch import Tensor

from models.backends.call import PlainInputs, SequenceCall, State
from models.forms import Matrices, Thin, Turns, Whole
from models.kernels.calls import Packed, Tensors
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
            _tensors(call),
            lengths,
            keep=call.return_sequences or call.learns(),
            packed=call.packed,
        )
        last: State = (last_h[0],) if len(call.initial) == 1 else (last_h[0], last_c[0])
        if not call.return_sequences:
            return states, last
        return modulus(states[0]) if kind.activation == "abs" else states[0], last

    def pack(self, call: SequenceCall) -> Packed:
        """The call's matrices in the kernels' own order; of the rest only sizes matter."""
        assert call.kind is not None
        return Packed(call.kind, _tensors(call))


def _tensors(call: SequenceCall) -> Tensors:
    """One model's tensors as the kernels take them, with a model axis of 1."""
    inputs, parts = call.inputs, call.form.parts()
    assert isinstance(parts, Matrices)
    plain = inputs if isinstance(inputs, PlainInputs) else None
    state, *cell = call.initial
    whole = parts if isinstance(parts, Whole) else None
    thin = parts if isinstance(parts, Thin) else None
    turns = parts if isinstance(parts, Turns) else None
    diagonal = None if isinstance(parts, Whole) else parts.diagonal
    gates, size = parts[0].shape[0], state.shape[-1]
    return Tensors(
        x=None if plain is None else plain.x.unsqueeze(0),
        addends=None if plain is not None else inputs.projections().unsqueeze(0),
        w_in=None if plain is None else plain.weight.view(1, gates, size, plain.x.shape[-1]),
        bias=_biases(None if plain is None else plain.bias, call.form.bias(), (gates, size)),
        weight=None if whole is None else whole.weight.unsqueeze(0),
        left=None if thin is None else thin.left.unsqueeze(0),
        right=None if thin is None else _right(thin).unsqueeze(0),
        diagonal=_one(diagonal),
        h0=state.unsqueeze(0),
        c0=cell[0].unsqueeze(0) if cell else None,
        u_turns=None if turns is None else turns.u.unsqueeze(0),
        v_turns=None if turns is None else _one(turns.v),
    )


def _biases(own: Tensor | None, recurrent: Tensor | None, shape: tuple[int, int]) -> Tensor | None:
    """Those of the inputs' products, then those of the states', `[1, 1 or 2, G, n]`."""
    if recurrent is None:
        return None if own is None else own.view(1, 1, *shape)
    own = torch.zeros_like(recurrent) if own is None else own.view(shape)
    return torch.stack((own, recurrent)).unsqueeze(0)


def _right(thin: Thin) -> Tensor:
    """R for all gates, or one for each: the kernels know nothing between."""
    num_right, gates = thin.right.shape[0], thin.left.shape[0]
    return thin.right.repeat_interleave(thin.shared_by, 0) if 1 < num_right < gates else thin.right


def _one(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.unsqueeze(0)
