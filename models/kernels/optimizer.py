"""A step of an optimizer for M members at once: norms of their gradients first, then the update.

Each member has rates, bounds and counts of steps of its own. In single precision on the CPU our
kernel passes once through all tensors; elsewhere torch's operations compute the same. Between the
two calls a caller sees by the norms which members have diverged.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from models.kernels.calls import address_of, call
from models.kernels.checks import check, check_range
from models.kernels.choice import kernels_take
from models.kernels.structs import OPTIMIZERS, OptimizerArguments, OptimizerName, OptimizerShape

MOMENTS: Final[Mapping[OptimizerName, int]] = {"adam": 2, "rmsprop": 1, "adagrad": 1, "sgd": 0}
"""Tensors that each keeps for every parameter, zeros at first: Adam's means of gradients and of
their squares, RMSprop's mean of squares, Adagrad's sum of squares."""

_BETAS: Final = (0.9, 0.999)
_ALPHA: Final = 0.9

_torch: Any = torch
foreach_copy_: Final[Callable[[Sequence[Tensor], Sequence[Tensor]], None]] = _torch._foreach_copy_
"""Copy tensors into others, all in one call."""


@dataclass(frozen=True)
class MemberRates:
    """What members have of their own, each float64 `[M]` on the CPU."""

    learning_rate: Tensor
    weight_decay: Tensor
    """Times the learning rate it is what parameters lose in a step, apart from their gradients"""
    clip_value: Tensor
    """Bound of each component of a gradient, above 0; infinite where there is none"""
    clip_norm: Tensor
    """Bound of a member's norm, after that; infinite where there is none"""
    recovery: Tensor
    """What times the parameters is the gradient where the norm is not finite; NaN where there is
    none, and the member stays as it is"""


@torch.no_grad()
def gradient_norms(gradients: Sequence[Tensor], clip_value: Tensor) -> Tensor:
    """The norm of all of each member's gradients, float64 `[M]` on the CPU.

    The gradients themselves stay. Squares are in the gradients' precision, so that a norm is
    infinite above its square root; of single precision blocks of numbers are added up in double,
    in the same order by however many threads.

    Args:
        gradients: of each parameter, `[M, ...]`, of one dtype on one device.
        clip_value: float64 `[M]`, see `MemberRates`.

    Raises:
        ValueError: there is no gradient, or a tensor is of another shape, dtype or device.
    """
    members = _members(gradients)
    _check_all("gradients", gradients, [(members, *one.shape[1:]) for one in gradients], gradients)
    _check_rates(members, clip_value=clip_value)
    if not kernels_take(gradients[0]):
        return _norms_by_torch(gradients, clip_value)
    gradients = [one.contiguous() for one in gradients]
    norms, bounds = torch.empty(members, dtype=torch.float64), clip_value.contiguous()
    held = _sizes(gradients), _addresses(gradients)
    sizes, addresses = map(ctypes.addressof, held)
    arguments = OptimizerArguments(
        sizes=sizes, gradients=addresses, clip_value=address_of(bounds), norms=address_of(norms)
    )
    call("optimizer_norms", _shape(members, gradients), arguments)
    return norms


@torch.no_grad()
def update_(
    optimizer: OptimizerName,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    moments: Sequence[Sequence[Tensor]],
    *,
    steps: Tensor,
    norms: Tensor,
    rates: MemberRates,
    scales: Tensor,
) -> None:
    """Take a step: parameters, moments and counts of steps change in place.

    A member's gradients are clipped by value and by norm, its parameters multiplied by
    `1 - learning_rate * weight_decay`, and moved as torch's optimizer of that name would
    (Adam with betas 0.9 and 0.999 and eps 1e-8, RMSprop with alpha 0.9 and eps 1e-8, Adagrad with
    eps 1e-10). Where the norm is not finite, `recovery` times the parameters is the gradient, and
    is not clipped; without a recovery all of the member stays as it is.

    Args:
        optimizer: its name.
        parameters: each `[M, ...]`, contiguous, all of one dtype on one device.
        gradients: of each parameter.
        moments: as many as `MOMENTS` says, each of them one tensor for each parameter.
        steps: int64 `[P, M]` on the CPU, those taken before with each of the P parameters, from 0.
        norms: float64 `[M]` on the CPU, of `gradient_norms`; NaN of a member whose loss is not
            finite.
        rates: what members have of their own.
        scales: float64 `[P, M]` on the CPU, factors of the learning rates, not of the decay.

    Raises:
        ValueError: a tensor is of another shape, dtype, device or layout, there is not one of each
            for all parameters, tensors that are written share memory with others, or there is no
            such optimizer.
    """
    members = _check_update(optimizer, parameters, gradients, moments)
    _check_rates(members, norms=norms, **vars(rates))
    check("scales", scales, (len(parameters), members), torch.float64)
    check("steps", steps, (len(parameters), members), torch.int64)
    _check_whole("steps", steps)
    check_range("steps", steps, 0, 2**53)
    if not kernels_take(parameters[0]):
        return _update_by_torch(
            optimizer, parameters, gradients, moments, steps, norms, rates, scales
        )
    gradients = [one.contiguous() for one in gradients]
    _check_apart([*parameters, *(one for kept in moments for one in kept), steps], gradients)
    own = {name: one.contiguous() for name, one in vars(rates).items()}
    own |= {"norms": norms.contiguous(), "scales": scales.contiguous()}
    lists = _sizes(parameters), *map(_addresses, (gradients, parameters, *moments))
    names = "sizes", "gradients", "parameters", "first", "second"
    arguments = OptimizerArguments(
        **dict(zip(names, map(ctypes.addressof, lists), strict=False)),
        **{name: address_of(one) for name, one in own.items()},
        steps=address_of(steps),
    )
    call("optimizer_update", _shape(members, parameters, optimizer), arguments)
    # As every operation of torch does, so that a backward pass refuses what it finds changed.
    torch.autograd.graph.increment_version(list(parameters))


def _members(tensors: Sequence[Tensor]) -> int:
    if not tensors or not tensors[0].dim() or not tensors[0].shape[0]:
        raise ValueError("there is no tensor of members; an optimizer takes at least one [M, ...]")
    return tensors[0].shape[0]


def _check_update(
    optimizer: OptimizerName,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    moments: Sequence[Sequence[Tensor]],
) -> int:
    """The number of members, if all lists are those of such a step."""
    if optimizer not in OPTIMIZERS:
        raise ValueError(f"there is no optimizer {optimizer!r}; allowed are {OPTIMIZERS}")
    if len(moments) != MOMENTS[optimizer]:
        raise ValueError(
            f"{len(moments)} moments are given; {optimizer} keeps {MOMENTS[optimizer]}"
        )
    members = _members(parameters)
    counts = {len(one) for one in (parameters, gradients, *moments)}
    if len(counts) > 1:
        raise ValueError(f"lists have {sorted(counts)} entries; there is one for each parameter")
    shapes = [(members, *one.shape[1:]) for one in parameters]
    _check_all("parameters", parameters, shapes, parameters)
    _check_all("gradients", gradients, shapes, parameters)
    for kept in moments:
        _check_all("moments", kept, shapes, parameters)
    for name, tensors in (("parameters", parameters), *(("moments", kept) for kept in moments)):
        for tensor in tensors:
            _check_whole(name, tensor)
    return members


def _check_all(
    name: str,
    tensors: Sequence[Tensor],
    shapes: Sequence[Sequence[int]],
    like: Sequence[Tensor],
) -> None:
    """Raise unless all have these shapes, and the dtype and device of the first of `like`."""
    dtype, device = like[0].dtype, like[0].device
    if not dtype.is_floating_point:
        raise ValueError(f"{name} are {dtype}; an optimizer takes real numbers")
    for tensor, shape in zip(tensors, shapes, strict=True):
        fits = tensor.shape == tuple(shape) and tensor.dtype == dtype and tensor.device == device
        if not fits or tensor.layout != torch.strided or tensor.is_neg():
            found = f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}, {tensor.layout}"
            raise ValueError(f"one of {name} is {found}; allowed is {dtype} {list(shape)}, strided")


def _check_whole(name: str, tensor: Tensor) -> None:
    if not tensor.is_contiguous():
        strides = tensor.stride()
        raise ValueError(f"{name} has strides {strides}; what is changed has to be contiguous")


def _check_rates(members: int, **rates: Tensor) -> None:
    for name, tensor in rates.items():
        check(name, tensor, (members,), torch.float64)


def _check_apart(written: Sequence[Tensor], read: Sequence[Tensor]) -> None:
    """Raise where a tensor that is written shares memory with another."""
    spans = [
        (tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, changes)
        for tensors, changes in ((written, True), (read, False))
        for tensor in tensors
        if tensor.numel()
    ]
    spans.sort()
    # The furthest end so far: of all spans, and of those that are written.
    end = written_end = 0
    for begin, own_end, changes in spans:
        if begin < (end if changes else written_end):
            raise ValueError("parameters, moments, steps and gradients share memory")
        end = max(end, own_end)
        written_end = max(written_end, own_end) if changes else written_end


def _shape(
    members: int, tensors: Sequence[Tensor], optimizer: OptimizerName = "sgd"
) -> OptimizerShape:
    number = OPTIMIZERS.index(optimizer)
    return OptimizerShape(members, len(tensors), number, torch.get_num_threads())


def _sizes(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(tensors))(*(one.numel() // one.shape[0] for one in tensors))


def _addresses(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*map(address_of, tensors))


def _norms_by_torch(gradients: Sequence[Tensor], clip_value: Tensor) -> Tensor:
    rows = _rows(gradients)
    bound = clip_value.to(rows).unsqueeze(1)
    norms: Tensor = _torch.linalg.vector_norm(rows.clamp(-bound, bound), dim=1)
    return norms.double().cpu()


def _rows(tensors: Sequence[Tensor]) -> Tensor:
    """All of each member's numbers in one row, so that an operation is one for all parameters."""
    return torch.cat([one.reshape(len(one), -1) for one in tensors], 1)


def _update_by_torch(
    optimizer: OptimizerName,
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    moments: Sequence[Sequence[Tensor]],
    steps: Tensor,
    norms: Tensor,
    rates: MemberRates,
    scales: Tensor,
) -> None:
    weights, gradient, *kept = map(_rows, (parameters, gradients, *moments))
    finite = norms.isfinite()
    moves = finite | ~rates.recovery.isnan()
    share = (rates.clip_norm / (norms + 1e-6)).clamp(max=1)
    steps += moves
    rate = rates.learning_rate * scales
    left = (1 - rates.learning_rate * rates.weight_decay).expand_as(rate)
    corrections = [1 - beta ** steps.double() for beta in _BETAS]
    if optimizer == "adam":
        rate = rate / corrections[0]
    # One copy to the device for what members have, and one for what differs by parameter as well.
    of_members = torch.stack([finite, moves, rates.clip_value, share, rates.recovery]).to(weights)
    finite, moves, bound, share, recovery = of_members.unsqueeze(-1)
    sizes = [one[0].numel() for one in parameters]
    rate, left, root = (
        torch.stack([rate.mT, left.mT, corrections[1].sqrt().mT])
        .to(weights)
        .repeat_interleave(torch.tensor(sizes).to(weights.device), 2, output_size=sum(sizes))
    )
    gradient = gradient.clamp(-bound, bound) * share
    gradient = torch.where(finite > 0, gradient, recovery * weights)
    means, direction = _direction(optimizer, gradient, kept, root)
    found = weights * left - rate * direction, *means
    for tensors, old, new in zip((parameters, *moments), (weights, *kept), found, strict=True):
        parts: Sequence[Tensor] = _torch.split(torch.where(moves > 0, new, old), sizes, 1)
        foreach_copy_(
            tensors, [part.view_as(own) for part, own in zip(parts, tensors, strict=True)]
        )


def _direction(
    optimizer: OptimizerName, gradient: Tensor, kept: Sequence[Tensor], root: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    """New moments, and what times the learning rate the parameters lose.

    `root` is that of what Adam's mean of squares is divided by.
    """
    if optimizer == "adam":
        mean = kept[0].lerp(gradient, 1 - _BETAS[0])
        square = kept[1] * _BETAS[1] + (1 - _BETAS[1]) * gradient.square()
        return (mean, square), mean / (square.sqrt() / root + 1e-8)
    if optimizer == "rmsprop":
        square = kept[0] * _ALPHA + (1 - _ALPHA) * gradient.square()
        return (square,), gradient / (square.sqrt() + 1e-8)
    if optimizer == "adagrad":
        square = kept[0] + gradient.square()
        return (square,), gradient / (square.sqrt() + 1e-10)
    return (), gradient
