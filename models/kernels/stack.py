"""Whole stacks of square layers as torch operators, with a leading model axis."""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from models.kernels import calls
from models.kernels.calls import Incoming, Kind, Results, Tensors
from models.kernels.members import any_learns, folded, unfolded
from models.kernels.memory import empty
from models.kernels.structs import STACKS

_TENSORS = (
    "Tensor x, Tensor bias, Tensor? weight, Tensor? left, Tensor? right, Tensor? diagonal, "
    "Tensor? u_turns, Tensor? v_turns"
)
_KIND = "str stack, str activation, float slope"
_COUNT = len(_TENSORS.split(","))
_NAMES = ("h0", "bias", "weight", "left", "right", "diagonal", "u_turns", "v_turns")
_library = cast(Any, torch.library)

_library.define("reflectory::stack", f"({_TENSORS}, {_KIND}, bool keep) -> (Tensor, Tensor)")
_library.define(
    "reflectory::stack_backward",
    f"(Tensor? grad_states, Tensor? grad_last, {_TENSORS}, Tensor states, {_KIND}, bool[] wanted) "
    "-> Tensor[]",
)


def stack(
    kind: Kind,
    x: Tensor,
    bias: Tensor,
    *,
    weight: Tensor | None = None,
    left: Tensor | None = None,
    right: Tensor | None = None,
    diagonal: Tensor | None = None,
    u_turns: Tensor | None = None,
    v_turns: Tensor | None = None,
    keep: bool,
) -> Tensor:
    """What the last of L layers of M independent models makes of x `[M, B, n]`.

    Args:
        kind: layers and activation; highway layers have relu and sigmoid, whatever it says.
        x: what the first layers read, float32, on the CPU.
        bias: `[M, L, G, n]`.
        weight: `[M, L, G, n, n]`, or left `[M, L, G, n, d]`, right `[M, L, G, d, n]`
            (`[M, L, 1, d, n]` where gates share it) and, if there is one, diagonal `[M, L, G, n]`;
            or u_turns `[M, L, G, K, n]` and, if there are, diagonal and v_turns.
        left: see weight.
        right: see weight.
        diagonal: see weight.
        u_turns: see weight.
        v_turns: see weight.
        keep: whether to keep what the layers gave, which a backward pass needs.
    """
    matrices = weight, left, right, diagonal, u_turns, v_turns
    operator = torch.ops.reflectory.stack
    _, last = operator(x, bias, *matrices, kind.cell, kind.activation, kind.slope, keep)
    return last


def _tensors(*given: Tensor | None) -> Tensors:
    x, bias, weight, left, right, diagonal, u_turns, v_turns = given
    assert x is not None
    assert bias is not None
    matrices = weight, left, right, diagonal
    return Tensors(*(None, None, None, bias.unsqueeze(-3), *matrices, x, None, u_turns, v_turns))


def _split(arguments: tuple[Any, ...]) -> tuple[Tensors, tuple[Any, ...]]:
    return _tensors(*arguments[:_COUNT]), arguments[_COUNT:]


def _run(*arguments: Any) -> tuple[Tensor, Tensor]:
    tensors, (name, activation, slope, keep) = _split(arguments)
    states, last = _results(tensors, keep=keep, large=empty)
    results = Results(states if keep else None, None, last, None)
    calls.forward(calls.kind_of(STACKS, name, activation, slope), tensors, None, results)
    return states, last


def _run_fake(*arguments: Any) -> tuple[Tensor, Tensor]:
    tensors, (*_, keep) = _split(arguments)
    return _results(tensors, keep=keep)


def _run_backward(*arguments: Any) -> list[Tensor]:
    grad_states, grad_last = arguments[:2]
    tensors, (states, name, activation, slope, wanted) = _split(arguments[2:])
    gradients = _gradients(arguments[2 : 2 + _COUNT], wanted)
    if grad_states is not None:
        raise NotImplementedError("what layers before the last gave is kept for gradients alone")
    if grad_last is None:
        return gradients
    outgoing = {
        field: gradient
        for field, gradient, want in zip(_NAMES, gradients, wanted, strict=True)
        if want
    }
    calls.backward(
        calls.kind_of(STACKS, name, activation, slope),
        tensors,
        None,
        Results(states, None, None, None),
        Incoming(None, None, grad_last, None),
        outgoing,
    )
    return gradients


def _run_backward_fake(*arguments: Any) -> list[Tensor]:
    return _gradients(arguments[2 : 2 + _COUNT], arguments[-1])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, name, activation, slope, keep = inputs
    if not keep:
        raise ValueError("a stack that is to be differentiated has to be run with keep=True")
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[0])
    ctx.kind = name, activation, slope
    ctx.mark_non_differentiable(output[0])


def _backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
    wanted = list(ctx.needs_input_grad[:_COUNT])
    operator = torch.ops.reflectory.stack_backward
    gradients = operator(*incoming, *ctx.saved_tensors, *ctx.kind, wanted)
    found = [gradient if want else None for gradient, want in zip(gradients, wanted, strict=True)]
    return (*found, *[None] * 4)


_library.impl("reflectory::stack", "cpu", _run)
_library.impl("reflectory::stack_backward", "cpu", _run_backward)
_library.register_fake("reflectory::stack", _run_fake)
_library.register_fake("reflectory::stack_backward", _run_backward_fake)
_library.register_autograd("reflectory::stack", _backward, setup_context=_setup_context)


def _results(
    tensors: Tensors, *, keep: bool, large: Callable[[Sequence[int]], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Tensors to be filled; `large` makes that of all layers where it is given."""
    models, batch, size = tensors.h0.shape
    kept = (models, tensors.steps, batch, size) if keep else (0,)
    return (large or tensors.h0.new_empty)(kept), tensors.h0.new_empty(models, batch, size)


def _gradients(given: Sequence[Tensor | None], wanted: list[bool]) -> list[Tensor]:
    """Zeros for what is wanted; else empty tensors."""
    x = given[0]
    assert x is not None
    return [
        x.new_zeros(tensor.shape if want and tensor is not None else (0,))
        for tensor, want in zip(given, wanted, strict=True)
    ]


def _of_members(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    """Members are models: one call for all of them."""
    members, (*kind, keep) = info.batch_size, arguments[_COUNT:]
    given = [
        None if tensor is None else folded(tensor, axis, members).contiguous()
        for tensor, axis in zip(arguments[:_COUNT], in_dims, strict=False)
    ]
    keep = keep or any_learns(given)
    states, last = torch.ops.reflectory.stack(*given, *kind, keep)
    last = unfolded(last, members)
    return ((unfolded(states, members), last), (0, 0)) if keep else ((states, last), (None, 0))


_library.register_vmap("reflectory::stack", _of_members)
