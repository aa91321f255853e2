"""One layer's sequence, by whichever backend computes it fastest.

The backends: `cpp`, our kernels on the CPU; `vendor`, torch's own recurrent kernels, for dense
matrices; `torch`, a loop over the steps in torch's operations, which computes everything on every
device and is what the others are tested against.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

import torch
from torch import Tensor
from torch.nn import functional as F

from models.kernels.calls import Kind, Packed, Tensors
from models.kernels.library import library
from models.kernels.sequence import sequence
from models.ops.activations import modulus
from models.ops.factors import DenseFactors, Factors, LowRankFactors
from models.ops.recurrence import State
from models.ops.vendor import vendor_computes, vendor_sequence

Backend: TypeAlias = Literal["cpp", "vendor", "torch"]
Reference: TypeAlias = Callable[[Factors, Tensor, State], Iterator[State]]

VENDOR_LSTM_FROM = 192


@dataclass(frozen=True, eq=False)
class PlainInputs:
    """Inputs x `[T, B, I]` with a plain matrix `[G*n, I]` and bias `[G*n]` for all gates."""

    x: Tensor
    weight: Tensor
    bias: Tensor | None

    def projections(self) -> Tensor:
        """What they add to the gates, `[T, B, G*n]`."""
        return F.linear(self.x, self.weight, self.bias)


@dataclass(frozen=True, eq=False)
class ProjectedInputs:
    """What the inputs add to the gates `[T, B, G*n]`, computed already."""

    addends: Tensor

    def projections(self) -> Tensor:
        """What they add to the gates, `[T, B, G*n]`."""
        return self.addends


Inputs: TypeAlias = PlainInputs | ProjectedInputs


def run_sequence(
    kind: Kind | None,
    reference: Reference,
    factors: Factors,
    inputs: Inputs,
    initial: State,
    *,
    every: bool,
    packed: Packed | None = None,
) -> tuple[Tensor, State]:
    """Run a cell over all steps.

    Args:
        kind: what the kernels call this cell; None where only `reference` computes it.
        reference: the cell as a loop in torch's operations.
        factors: the recurrent matrices.
        inputs: what the cell reads.
        initial: the state before the first step, each part `[B, n]`.
        every: whether all states are wanted, or the last one alone.
        packed: the matrices as `pack` gave them, where it did.

    Returns:
        All h `[T, B, n]` (without `every` an empty tensor), and the last state.
    """
    backend = "cpp" if packed else choose(kind, factors, inputs, initial[0])
    match backend:
        case "cpp":
            assert kind is not None
            return _cpp(kind, factors, inputs, initial, every=every, packed=packed)
        case "vendor":
            assert kind is not None
            assert isinstance(factors, DenseFactors)
            assert isinstance(inputs, PlainInputs)
            return vendor_sequence(kind, factors, inputs.x, inputs.weight, inputs.bias, initial)
        case "torch":
            steps = reference(factors, inputs.projections(), initial)
            return _collected(steps) if every else (initial[0].new_empty(0), _last(steps))


@torch.no_grad()
def pack(kind: Kind | None, factors: Factors, inputs: Inputs, state: Tensor) -> Packed | None:
    """Matrices in the kernels' own order, for many runs without gradients.

    None where the kernels do not run. Of the inputs and the state `[B, n]` only sizes matter.
    """
    if kind is None or choose(kind, factors, inputs, state) != "cpp":
        return None
    cell = state.new_empty(state.shape)
    return Packed(kind, _tensors(factors, inputs, (state, cell)))


def choose(kind: Kind | None, factors: Factors, inputs: Inputs, state: Tensor) -> Backend:
    """The backend that runs a sequence; `REFLECTORY_BACKEND` in the environment names another.

    What is named there is taken wherever it computes the same.
    """
    allowed = tuple(_computing(kind, factors, inputs, state))
    wanted = _wanted()
    if wanted in allowed:
        return wanted
    return allowed[0]


def _computing(
    kind: Kind | None, factors: Factors, inputs: Inputs, state: Tensor
) -> Iterator[Backend]:
    """The backends that compute a sequence, the fastest first.

    Measured on CPUs (tests/benchmarks/sequences.py): our kernels are ahead of torch's in every
    form, but for training a large dense LSTM, where oneDNN keeps its gates.
    """
    dense = isinstance(factors, DenseFactors)
    ours = (
        kind is not None
        and isinstance(factors, DenseFactors | LowRankFactors)
        and state.device.type == "cpu"
        and state.dtype == torch.float32
        and _is_built()
    )
    theirs = (
        kind is not None
        and dense
        and isinstance(inputs, PlainInputs)
        and vendor_computes(kind)
        and state.shape[0] > 0
    )
    large_lstm = kind is not None and kind.cell == "lstm" and state.shape[-1] >= VENDOR_LSTM_FROM
    if theirs and (not ours or (large_lstm and torch.is_grad_enabled())):
        yield "vendor"
    if ours:
        yield "cpp"
    if theirs:
        yield "vendor"
    yield "torch"


def _cpp(
    kind: Kind,
    factors: Factors,
    inputs: Inputs,
    initial: State,
    *,
    every: bool,
    packed: Packed | None,
) -> tuple[Tensor, State]:
    tensors = _tensors(factors, inputs, initial)
    learns = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in tensors.in_order()
    )
    states, _, last_h, last_c = sequence(kind, tensors, None, keep=every or learns, packed=packed)
    last: State = (last_h[0],) if len(initial) == 1 else (last_h[0], last_c[0])
    if not every:
        return states, last
    return modulus(states[0]) if kind.activation == "abs" else states[0], last


def _tensors(factors: Factors, inputs: Inputs, initial: State) -> Tensors:
    """One model's tensors as the kernels take them, with a model axis of 1."""
    plain = inputs if isinstance(inputs, PlainInputs) else None
    state, *cell = initial
    gates, matrices = _matrices(factors)
    size = state.shape[-1]
    bias = None if plain is None else plain.bias
    return Tensors(
        x=None if plain is None else plain.x.unsqueeze(0),
        addends=None if plain is not None else inputs.projections().unsqueeze(0),
        w_in=None if plain is None else plain.weight.view(1, gates, size, plain.x.shape[-1]),
        bias=None if bias is None else bias.view(1, gates, size),
        **matrices,
        h0=state.unsqueeze(0),
        c0=cell[0].unsqueeze(0) if cell else None,
    )


def _matrices(factors: Factors) -> tuple[int, dict[str, Tensor | None]]:
    """How many matrices there are, and the tensors that make them."""
    if isinstance(factors, DenseFactors):
        none = dict.fromkeys(("left", "right", "diagonal"))
        return factors.weight.shape[0], {"weight": factors.weight.unsqueeze(0), **none}
    assert isinstance(factors, LowRankFactors)
    right = factors.right
    if 1 < right.shape[0] < factors.left.shape[0]:
        right = right.repeat_interleave(factors.shared_by, 0)
    diagonal = factors.diagonal
    return factors.left.shape[0], {
        "weight": None,
        "left": factors.left.unsqueeze(0),
        "right": right.unsqueeze(0),
        "diagonal": None if diagonal is None else diagonal.unsqueeze(0),
    }


def _collected(steps: Iterator[State]) -> tuple[Tensor, State]:
    states = list(steps)
    return torch.stack([h for h, *_ in states]), states[-1]


def _last(steps: Iterator[State]) -> State:
    """The last state, keeping no other."""
    last = next(steps)
    for state in steps:
        last = state
    return last


# What is traced asks once, and keeps the answer.
@torch.compiler.assume_constant_result  # pyright: ignore[reportUnknownMemberType] -- untyped
def _is_built() -> bool:
    return library() is not None


@torch.compiler.assume_constant_result  # pyright: ignore[reportUnknownMemberType] -- untyped
def _wanted() -> Backend | None:
    wanted = os.environ.get("REFLECTORY_BACKEND")
    if wanted is None:
        return None
    if wanted not in get_args(Backend):
        allowed = ", ".join(get_args(Backend))
        raise ValueError(f"REFLECTORY_BACKEND is {wanted!r}; allowed are {allowed}")
    return cast(Any, wanted)
