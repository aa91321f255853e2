"""Whole recurrent sequences as torch operators, forward and backward, with a leading model axis."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from models.kernels import calls
from models.kernels.calls import Incoming, Kind, Packed, Results, Tensors
from models.kernels.members import any_learns, folded, unfolded
from models.kernels.memory import empty
from models.kernels.structs import CELLS

_TENSORS = (
    "Tensor? x, Tensor? addends, Tensor? w_in, Tensor? bias, Tensor? weight, Tensor? left, "
    "Tensor? right, Tensor? diagonal, Tensor h0, Tensor? c0, Tensor? u_turns, Tensor? v_turns"
)
_KIND = "str cell, str activation, float slope"
_COUNT = len(_TENSORS.split(","))

MOST_KEPT = 256 << 20
"""Bytes of gates that a sequence keeps for its backward pass at most."""
LEAST_KEPT_SIZE = 48
"""Of fewer units gates are computed again as fast as they are read."""
_library = cast(Any, torch.library)

_library.define(
    "reflectory::sequence",
    f"({_TENSORS}, Tensor? lengths, {_KIND}, bool keep, bool learns, int packed) "
    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
_library.define(
    "reflectory::sequence_backward",
    "(Tensor? grad_states, Tensor? grad_cells, Tensor? grad_last_h, Tensor? grad_last_c, "
    f"{_TENSORS}, Tensor? lengths, Tensor states, Tensor cells, Tensor kept, {_KIND}, "
    "bool[] wanted) "
    "-> Tensor[]",
)


def sequence(
    kind: Kind,
    tensors: Tensors,
    lengths: Tensor | None,
    *,
    keep: bool,
    learns: bool = True,
    packed: Packed | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """M independent models' sequences: states `[M, T, B, n]`, cells, last h `[M, B, n]`, last c.

    States are h_t, but with `abs` the z_t of `h_t = |z_t|`, whose sign the backward pass needs.
    Without `keep` there are neither states nor cells, and no backward pass; what a cell does not
    have is an empty tensor of one dimension.

    Args:
        kind: cell and activation.
        tensors: float32, on the CPU.
        lengths: int64 `[M, B]`, at least 1 each: a sample's state stays after its length.
        keep: whether to keep the states; needed where gradients are.
        learns: whether a backward pass is expected, which then reads the gates where they take no
            more than `MOST_KEPT` bytes and are worth it. Else it would compute them again, which
            gives the same.
        packed: the tensors' weights, packed; gradients then would be of the tensors themselves.
    """
    operator = torch.ops.reflectory.sequence
    handle = packed.handle if packed else 0
    named = kind.cell, kind.activation, kind.slope
    return operator(*tensors.in_order(), lengths, *named, keep, learns, handle)[:4]


def _run(*arguments: Any) -> tuple[Tensor, ...]:
    tensors, (lengths, cell, activation, slope, keep, learns, packed) = _split(arguments)
    kind = calls.kind_of(CELLS, cell, activation, slope)
    results = _results(tensors, kind, keep=keep, learns=learns, large=empty)
    states, cells, last_h, last_c, kept = results
    given = Results(_given(states), _given(cells), last_h, _given(last_c), _given(kept))
    calls.forward(kind, tensors, lengths, given, packed)
    return results


def _run_fake(*arguments: Any) -> tuple[Tensor, ...]:
    tensors, (_, *kind, keep, learns, _) = _split(arguments)
    return _results(tensors, Kind(*kind), keep=keep, learns=learns)


def _run_backward(*arguments: Any) -> list[Tensor]:
    incoming = Incoming(*(None if one is None else _given(one) for one in arguments[:4]))
    tensors, (lengths, states, cells, kept, *kind, wanted) = _split(arguments[4:])
    gradients = _gradients(tensors, wanted)
    calls.backward(
        calls.kind_of(CELLS, *kind),
        tensors,
        lengths,
        Results(states, _given(cells), None, None, _given(kept)),
        incoming,
        {
            name: gradient
            for name, gradient, want in zip(Tensors.names(), gradients, wanted, strict=True)
            if want
        },
    )
    return gradients


def _run_backward_fake(*arguments: Any) -> list[Tensor]:
    tensors, (*_, wanted) = _split(arguments[4:])
    return _gradients(tensors, wanted)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *saved, cell, activation, slope, keep, _, _ = inputs
    if not keep:
        raise ValueError("a sequence that is to be differentiated has to be run with keep=True")
    states, cells, _, _, kept = output
    ctx.mark_non_differentiable(kept)
    # A gradient of zeros for all states would cost as much as the states.
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*saved, states, cells, kept)
    ctx.kind = cell, activation, slope


def _backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
    wanted = list(ctx.needs_input_grad[:_COUNT])
    operator = torch.ops.reflectory.sequence_backward
    gradients = operator(*incoming[:4], *ctx.saved_tensors, *ctx.kind, wanted)
    found = [gradient if want else None for gradient, want in zip(gradients, wanted, strict=True)]
    return (*found, *[None] * 7)


_library.impl("reflectory::sequence", "cpu", _run)
_library.impl("reflectory::sequence_backward", "cpu", _run_backward)
_library.register_fake("reflectory::sequence", _run_fake)
_library.register_fake("reflectory::sequence_backward", _run_backward_fake)
_library.register_autograd("reflectory::sequence", _backward, setup_context=_setup_context)


def _of_members(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    """Members are models: one call for all of them."""
    members, (*kind, keep, learns, packed) = info.batch_size, arguments[_COUNT + 1 :]
    tensors = [
        None if tensor is None else folded(tensor, axis, members)
        for tensor, axis in zip(arguments[: _COUNT + 1], in_dims, strict=False)
    ]
    # x alone may be strided.
    x, *others = tensors
    given = [x, *(None if one is None else one.contiguous() for one in others)]
    learns = learns or any_learns(given)
    found = torch.ops.reflectory.sequence(*given, *kind, keep or learns, learns, packed)
    is_there = [_given(one) is not None for one in found]
    results = (
        unfolded(one, members) if there else one for one, there in zip(found, is_there, strict=True)
    )
    return tuple(results), tuple(0 if there else None for there in is_there)


_library.register_vmap("reflectory::sequence", _of_members)


def _split(arguments: tuple[Any, ...]) -> tuple[Tensors, tuple[Any, ...]]:
    return Tensors(*arguments[:_COUNT]), arguments[_COUNT:]


def _results(
    tensors: Tensors,
    kind: Kind,
    *,
    keep: bool,
    learns: bool,
    large: Callable[[Sequence[int]], Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Tensors to be filled; `large` makes those of all steps where it is given."""
    h0 = tensors.h0
    large = large or h0.new_empty
    models, batch, size = h0.shape
    every, last, none = (models, tensors.steps, batch, size), (models, batch, size), (0,)
    has_cell = kind.cell == "lstm"
    kept = calls.kept_floats(kind, tensors) if keep and learns else 0
    is_kept = size >= LEAST_KEPT_SIZE and 0 < 4 * models * kept <= MOST_KEPT
    return (
        large(every if keep else none),
        large(every if keep and has_cell else none),
        h0.new_empty(last),
        h0.new_empty(last if has_cell else none),
        large((models, kept) if is_kept else none),
    )


def _given(tensor: Tensor) -> Tensor | None:
    """None for what `_results` left empty."""
    return None if tensor.shape == (0,) else tensor


def _gradients(tensors: Tensors, wanted: list[bool]) -> list[Tensor]:
    """Zeros for what is wanted, contiguous like no strided x would be; else empty tensors."""
    return [
        tensors.h0.new_zeros(tensor.shape if want and tensor is not None else (0,))
        for tensor, want in zip(tensors.in_order(), wanted, strict=True)
    ]
