"""Whole stacks of square layers as torch operators, forward and backward."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from models.kernels import calls
from models.kernels.calls import Incoming, Kind, Results, Tensors
from models.kernels.members import one_after_the_other
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
    """What the last of L layers makes of x `[B, n]`.

    Args:
        kind: layers and activation; highway layers have relu and sigmoid, whatever it says.
        x: what the first layer reads, float32, on the CPU.
        bias: `[L, G, n]`.
        weight: `[L, G, n, n]`, or left `[L, G, n, d]`, right `[L, G, d, n]` (`[L, 1, d, n]` where
            gates share it) and, if there is one, diagonal `[L, G, n]`; or u_turns
            `[L, G, K, n]` and, if there are, diagonal and v_turns.
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
    return Tensors(
        *(None, None, None, bias.unsqueeze(1), *matrices, x.unsqueeze(0), None, u_turns, v_turns)
    )


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
    gradients = _gradients(tensors, wanted)
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
    tensors, (*_, wanted) = _split(arguments[2:])
    return _gradients(tensors, wanted)


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
    _, batch, size = tensors.h0.shape
    kept = (tensors.models, batch, size) if keep else (0,)
    return (large or tensors.h0.new_empty)(kept), tensors.h0.new_empty(batch, size)


def _gradients(tensors: Tensors, wanted: list[bool]) -> list[Tensor]:
    assert tensors.bias is not None
    shaped = replace(tensors, h0=tensors.h0[0], bias=tensors.bias.squeeze(1))
    given = [getattr(shaped, name) for name in _NAMES]
    return [
        shaped.h0.new_zeros(tensor.shape if want and tensor is not None else (0,))
        for tensor, want in zip(given, wanted, strict=True)
    ]


_library.register_vmap("reflectory::stack", one_after_the_other(torch.ops.reflectory.stack))
