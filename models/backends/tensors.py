"""A call's tensors as our operators take them, on CPUs and on GPUs."""

import torch
from torch import Tensor

from models.backends.call import PlainInputs, SequenceCall
from models.forms import Matrices, Thin, Turns, Whole
from models.kernels.calls import Tensors


def tensors_of(call: SequenceCall) -> Tensors:
    """One model's tensors with a model axis of 1; its matrices are whole, thin or of rotations."""
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
