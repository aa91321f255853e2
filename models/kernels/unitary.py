"""Whole sequences of the uRNN with matrices of Fourier transforms, as torch operators.

All tensors have a leading model axis: M models of equal shape run side by side.
"""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from models.kernels.calls import address_of, call
from models.kernels.checks import check, check_range
from models.kernels.choice import asked_once
from models.kernels.members import any_learns, folded, unfolded
from models.kernels.structs import UnitaryArguments, UnitaryGradients, UnitaryShape

LARGEST_PRIME = 509
"""Of a transform's length. A prime is a product with a matrix, which costs its square: here half of
torch's time, and more of it beyond."""

_TENSORS = (
    "Tensor addends, Tensor phases, Tensor reflections, Tensor order, Tensor bias, Tensor h0, "
    "Tensor? lengths"
)
_library = cast(Any, torch.library)

_library.define(
    "reflectory::unitary_sequence",
    f"({_TENSORS}, bool states, bool keep) -> (Tensor, Tensor, Tensor)",
)
_library.define(
    "reflectory::unitary_sequence_backward",
    f"(Tensor? grad_states, Tensor? grad_last, {_TENSORS}, Tensor inner, bool[] wanted) "
    "-> Tensor[]",
)


class UnitaryTensors(NamedTuple):
    """What a sequence is computed from; float32, on the CPU."""

    addends: Tensor
    """[M, T, B, 2 n], what the inputs add, as all vectors `(re | im)`"""
    phases: Tensor
    """[M, 3, n], of the diagonals D_1, D_2, D_3"""
    reflections: Tensor
    """[M, 2, 2 n], vectors of R_1 and R_2 of any length; 0 is the identity"""
    order: Tensor
    """int64 [M, n]: Pi takes coordinate `order[j]` to place j"""
    bias: Tensor
    """[M, n], of the rescaling"""
    h0: Tensor
    """[M, B, 2 n]"""


@asked_once
def transforms(size: int) -> bool:
    """Whether the kernel has a transform of such a length: no prime in it is too large."""
    return size > 0 and max(_primes(size), default=1) <= LARGEST_PRIME


@asked_once
def transform_products(size: int) -> int:
    """About how many multiply-adds a transform takes, for `transforms(size)`."""
    each = sum(count * (2.5 if prime == 2 else prime + 2) for prime, count in _primes(size).items())
    return round(size * each)


def unitary_sequence(
    tensors: UnitaryTensors, lengths: Tensor | None, *, states: bool, keep: bool
) -> tuple[Tensor, Tensor]:
    """`z_t = D_3 R_2 F^-1 D_2 Pi R_1 F D_1 h_{t-1} + addend_t`, `h_t = rescale(z_t)`.

    Gives all h `[M, T, B, 2 n]` (empty without `states`) and the last one `[M, B, 2 n]`.

    Args:
        tensors: what it is computed from.
        lengths: int64 `[M, B]`, at least 1 each: a sample's state stays after its length.
        states: whether all h are wanted.
        keep: whether to keep the z; needed where gradients are.
    """
    operator = torch.ops.reflectory.unitary_sequence
    found, _, last = operator(*tensors, lengths, states, keep)
    return found, last


def _run(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *given, lengths, states, keep = arguments
    tensors, lengths = _checked(UnitaryTensors(*given), lengths)
    results = _results(tensors, states=states, keep=keep)
    held, structure = _arguments(
        tensors, lengths, _given(results[0]), _given(results[1]), results[2]
    )
    call("unitary_forward", _shape(tensors), structure)
    del held
    return results


def _run_fake(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *given, _, states, keep = arguments
    return _results(UnitaryTensors(*given), states=states, keep=keep)


def _run_backward(*arguments: Any) -> list[Tensor]:
    grad_states, grad_last, *given, lengths, inner, wanted = arguments
    tensors, lengths = _checked(UnitaryTensors(*given), lengths)
    every, last = tensors.addends.shape, tensors.h0.shape
    check("inner", inner, every, torch.float32)
    arriving = [
        None if gradient is None else _whole(name, gradient, shape)
        for name, gradient, shape in (
            ("the gradient of states", grad_states, every),
            ("the gradient of last_h", grad_last, last),
        )
    ]
    if len(wanted) != len(_LEARNT):
        raise ValueError(f"wanted has {len(wanted)} entries; allowed are {len(_LEARNT)}")
    gradients = _gradients(tensors, wanted)
    leaving = [gradient if want else None for gradient, want in zip(gradients, wanted, strict=True)]
    held, structure = _arguments(tensors, lengths, None, inner.contiguous(), None)
    addresses = (address_of(tensor) for tensor in (*arriving, *leaving))
    call("unitary_backward", _shape(tensors), structure, UnitaryGradients(*addresses))
    del held
    return gradients


def _run_backward_fake(*arguments: Any) -> list[Tensor]:
    _, _, *given, _, _, wanted = arguments
    return _gradients(UnitaryTensors(*given), wanted)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, _, keep = inputs
    if not keep:
        raise ValueError("a sequence that is to be differentiated has to be run with keep=True")
    # A gradient of zeros for all states would cost as much as the states.
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, output[1])
    ctx.mark_non_differentiable(output[1])


_LEARNT = (0, 1, 2, 4, 5)
"""Of the tensors in order: all but the order."""


def _backward(ctx: Any, *incoming: Tensor | None) -> tuple[Tensor | None, ...]:
    wanted = [ctx.needs_input_grad[place] for place in _LEARNT]
    operator = torch.ops.reflectory.unitary_sequence_backward
    grad_states, _, grad_last = incoming
    gradients = operator(grad_states, grad_last, *ctx.saved_tensors, wanted)
    found: list[Tensor | None] = [None] * 9
    for place, gradient, want in zip(_LEARNT, gradients, wanted, strict=True):
        found[place] = gradient if want else None
    return tuple(found)


_library.impl("reflectory::unitary_sequence", "cpu", _run)
_library.impl("reflectory::unitary_sequence_backward", "cpu", _run_backward)
_library.register_fake("reflectory::unitary_sequence", _run_fake)
_library.register_fake("reflectory::unitary_sequence_backward", _run_backward_fake)
_library.register_autograd("reflectory::unitary_sequence", _backward, setup_context=_setup_context)


def _results(tensors: UnitaryTensors, *, states: bool, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    addends, h0 = tensors.addends, tensors.h0
    every, none = addends.shape, (0,)
    return (
        h0.new_empty(every if states else none),
        h0.new_empty(every if keep else none),
        h0.new_empty(h0.shape),
    )


def _given(tensor: Tensor) -> Tensor | None:
    """None for what `_results` left empty."""
    return None if tensor.shape == (0,) else tensor


def _gradients(tensors: UnitaryTensors, wanted: list[bool]) -> list[Tensor]:
    """What the kernel writes, contiguous; zeros where there is no sample to write them."""
    h0 = tensors.h0
    some = h0.new_empty if h0.numel() else h0.new_zeros
    return [
        some(tensors[place].shape if want else (0,))
        for place, want in zip(_LEARNT, wanted, strict=True)
    ]


def _checked(
    tensors: UnitaryTensors, lengths: Tensor | None
) -> tuple[UnitaryTensors, Tensor | None]:
    """The tensors, contiguous, if they are what the kernel reads."""
    addends, phases, reflections, order, bias, h0 = tensors
    if addends.dim() != 4 or phases.dim() != 3:
        found = f"{list(addends.shape)} and {list(phases.shape)}"
        allowed = "[M, T, B, 2 n] and [M, 3, n]"
        raise ValueError(f"addends and phases are {found}; the kernel takes {allowed}")
    models, steps, batch, _ = addends.shape
    size = phases.shape[2]
    if not steps:
        raise ValueError("addends have no step; the kernel takes at least 1")
    if not transforms(size):
        raise ValueError(f"n is {size}; allowed are products of primes up to {LARGEST_PRIME}")
    check("phases", phases, (models, 3, size), torch.float32)
    check("addends", addends, (models, steps, batch, 2 * size), torch.float32)
    check("reflections", reflections, (models, 2, 2 * size), torch.float32)
    check("order", order, (models, size), torch.int64)
    check_range("order", order, 0, size - 1)
    if not torch.zeros(models, size, dtype=torch.bool).scatter_(1, order, value=True).all():
        raise ValueError("order names some coordinate twice")
    check("bias", bias, (models, size), torch.float32)
    check("h0", h0, (models, batch, 2 * size), torch.float32)
    if lengths is not None:
        check("lengths", lengths, (models, batch), torch.int64)
        check_range("lengths", lengths, 1, steps)
        lengths = lengths.contiguous()
    return UnitaryTensors(*(tensor.contiguous() for tensor in tensors)), lengths


def _whole(name: str, tensor: Tensor, shape: torch.Size) -> Tensor:
    check(name, tensor, shape, torch.float32)
    return tensor.contiguous()


def _shape(tensors: UnitaryTensors) -> UnitaryShape:
    sizes = tensors.addends.shape[:3]
    return UnitaryShape(*sizes, tensors.bias.shape[1], torch.get_num_threads())


def _arguments(
    tensors: UnitaryTensors,
    lengths: Tensor | None,
    states: Tensor | None,
    inner: Tensor | None,
    last_h: Tensor | None,
) -> tuple[tuple[Tensor, ...], UnitaryArguments]:
    """The addresses, and what has to live as long as the call beside the arguments."""
    addends, phases, reflections, order, bias, h0 = tensors
    turns = torch.stack((phases.cos(), phases.sin()))
    roots = _roots(bias.shape[1])
    read = addends, turns, reflections, bias, h0, order, roots, lengths
    return (turns, roots), UnitaryArguments(*map(address_of, (*read, states, inner, last_h)))


@functools.lru_cache(maxsize=16)
def _roots(size: int) -> Tensor:
    """Cosines and sines of `2 pi k / n`, `[2, n]`."""
    with torch.inference_mode(mode=False):
        angles = torch.arange(size, dtype=torch.float64) * (2 * torch.pi / size)
        return torch.stack((angles.cos(), angles.sin())).float()


@functools.cache
def _primes(number: int) -> Mapping[int, int]:
    """The primes of a number, and how often each divides it."""
    found: dict[int, int] = {}
    factor = 2
    while number > 1:
        if factor * factor > number:
            factor = number
        if number % factor:
            factor += 1
        else:
            found[factor] = found.get(factor, 0) + 1
            number //= factor
    return found


def _of_members(info: Any, in_dims: tuple[Any, ...], *arguments: Any) -> tuple[Any, Any]:
    """Members are models: one call for all of them."""
    members, (*tensors, states, keep) = info.batch_size, arguments
    given = [
        None if tensor is None else folded(tensor, axis, members)
        for tensor, axis in zip(tensors, in_dims, strict=False)
    ]
    keep = keep or any_learns(given)
    found = torch.ops.reflectory.unitary_sequence(*given, states, keep)
    is_there = [_given(one) is not None for one in found]
    results = (
        unfolded(one, members) if there else one for one, there in zip(found, is_there, strict=True)
    )
    return tuple(results), tuple(0 if there else None for there in is_there)


_library.register_vmap("reflectory::unitary_sequence", _of_members)
