"""One layer's sequence, by whichever backend computes it fastest.

The backends: `cpp`, our kernels on the CPU; `vendor`, torch's own recurrent kernels, for dense
matrices; `torch`, a loop over the steps in torch's operations, which computes everything on every
device and is what the others are tested against; `graph`, that loop captured in CUDA graphs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from models.kernels.calls import Kind, Packed, Tensors
from models.kernels.sequence import sequence
from models.ops import cuda_graphs
from models.ops.activations import modulus
from models.ops.backends import Backend, kernels_are_built, wanted_backend
from models.ops.factors import DenseFactors, Factors, LowRankFactors, MaskedFactors
from models.ops.recurrence import State
from models.ops.vendor import vendor_computes, vendor_sequence

Reference: TypeAlias = Callable[..., Iterator[State]]
"""Factors, projections `[T, B, G*n]` and the first state -> T states; with a keyword
`candidate_bias` where a GRU has one."""

VENDOR_LSTM_BATCH = 64
VENDOR_LSTM_SIZE = 384


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
    candidate_bias: Tensor | None = None,
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
        candidate_bias: `[n]`, which a GRU that resets after its matrix adds to `W_q h`, or None.
        packed: the matrices as `pack` gave them, where it did.

    Returns:
        All h `[T, B, n]` (without `every` an empty tensor), and the last state.
    """
    backend = "cpp" if packed else choose(kind, factors, inputs, initial[0])
    match backend:
        case "cpp":
            assert kind is not None
            tensors = _tensors(factors, inputs, initial, candidate_bias)
            return _cpp(kind, tensors, initial, every=every, packed=packed)
        case "vendor":
            assert kind is not None
            assert isinstance(factors, DenseFactors)
            assert isinstance(inputs, PlainInputs)
            return vendor_sequence(
                kind,
                factors,
                inputs.x,
                inputs.weight,
                inputs.bias,
                initial,
                candidate_bias=candidate_bias,
            )
        case "graph":
            assert kind is not None
            return _graphed(
                kind,
                reference,
                factors,
                inputs,
                initial,
                every=every,
                candidate_bias=candidate_bias,
            )
        case "torch":
            biased = _biased(reference, candidate_bias)
            return _looped(biased, factors, inputs.projections(), initial, every=every)


@torch.no_grad()
def pack(
    kind: Kind | None,
    factors: Factors,
    inputs: Inputs,
    state: Tensor,
    *,
    candidate_bias: Tensor | None = None,
) -> Packed | None:
    """Matrices in the kernels' own order, for many runs without gradients.

    None where the kernels do not run. Of the inputs and the state `[B, n]` only sizes matter.
    """
    if kind is None or choose(kind, factors, inputs, state) != "cpp":
        return None
    initial: State = (state, state.new_empty(state.shape)) if kind.cell == "lstm" else (state,)
    return Packed(kind, _tensors(factors, inputs, initial, candidate_bias))


def choose(kind: Kind | None, factors: Factors, inputs: Inputs, state: Tensor) -> Backend:
    """The backend that runs a sequence; `REFLECTORY_BACKEND` in the environment names another.

    What is named there is taken wherever it computes the same, see `computing`.

    Raises:
        ValueError: the environment names no backend.
    """
    allowed = computing(kind, factors, inputs, state)
    wanted = wanted_backend()
    return wanted if wanted in allowed else allowed[0]


def computing(
    kind: Kind | None, factors: Factors, inputs: Inputs, state: Tensor
) -> tuple[Backend, ...]:
    """The backends that compute a sequence, the fastest first; of states `[B, n]` only sizes count.

    Whether gradients are kept decides, too: it has to be asked as the sequence will be run.
    """
    asked = _Asked(kind, factors, inputs, state)
    order = next(order for applies, order in _FASTEST_FIRST if applies(asked))
    return tuple(backend for backend in order if _COMPUTES[backend](asked))


@dataclass(frozen=True, eq=False)
class _Asked:
    """A sequence that is to be run, as far as the choice of a backend goes."""

    kind: Kind | None
    factors: Factors
    inputs: Inputs
    state: Tensor


def vendor_trains_lstm(batch_size: int, size: int) -> bool:
    """Whether torch's own kernel trains a dense LSTM faster than ours, see Note [Which backend]."""
    return batch_size <= VENDOR_LSTM_BATCH or size >= VENDOR_LSTM_SIZE


def _on_a_gpu(asked: _Asked) -> bool:
    return asked.state.device.type == "cuda"


def _trains_a_dense_lstm(asked: _Asked) -> bool:
    kind, factors, (batch, size) = asked.kind, asked.factors, asked.state.shape
    if kind is None or kind.cell != "lstm" or not isinstance(factors, DenseFactors):
        return False
    pays = vendor_trains_lstm(batch, size)
    return pays and _learns(factors.weight, asked.state, *_given(asked.inputs))


def _anything(_: _Asked) -> bool:
    return True


# Note [Which backend]
# Measured in fp32 with one thread (tests/benchmarks): our kernels take 0.2 to 0.6 of torch.nn's
# time for every RNN and GRU, and less for low rank. A dense LSTM is oneDNN's own ground: inference
# is a draw; training takes us 1.1 to 1.8 of its time up to B = 64 or from n = 384 on, and 0.65 to
# 1 where the batch is larger and n smaller. A GPU has no kernels of ours: cuDNN where it computes
# the same, else the loop as a graph, which saves the launches.
_FASTEST_FIRST: tuple[tuple[Callable[[_Asked], bool], tuple[Backend, ...]], ...] = (
    (_on_a_gpu, ("vendor", "graph", "torch")),
    (_trains_a_dense_lstm, ("vendor", "cpp", "torch")),
    (_anything, ("cpp", "vendor", "torch")),
)


def _ours_compute(asked: _Asked) -> bool:
    return (
        asked.kind is not None
        and isinstance(asked.factors, DenseFactors | LowRankFactors)
        and asked.state.device.type == "cpu"
        and asked.state.dtype == torch.float32
        and kernels_are_built()
    )


def _the_vendors_compute(asked: _Asked) -> bool:
    return (
        asked.kind is not None
        and isinstance(asked.factors, DenseFactors)
        and isinstance(asked.inputs, PlainInputs)
        and vendor_computes(asked.kind)
        and asked.state.device.type in ("cpu", "cuda")
        and asked.state.shape[0] > 0
        # torch.compile traces around these kernels, which leaves a model in pieces.
        and not torch.compiler.is_compiling()
    )


def _a_graph_computes(asked: _Asked) -> bool:
    return (
        asked.kind is not None
        and _is_taken_apart(asked.factors)
        and asked.state.shape[0] > 0
        and not torch.compiler.is_compiling()
        and cuda_graphs.can_be_used(asked.state.device)
    )


_COMPUTES: Mapping[Backend, Callable[[_Asked], bool]] = {
    "cpp": _ours_compute,
    "vendor": _the_vendors_compute,
    "graph": _a_graph_computes,
    "torch": _anything,
}


def _given(inputs: Inputs) -> tuple[Tensor | None, ...]:
    if isinstance(inputs, ProjectedInputs):
        return (inputs.addends,)
    return inputs.x, inputs.weight, inputs.bias


def _learns(*tensors: Tensor | None) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _cpp(
    kind: Kind, tensors: Tensors, initial: State, *, every: bool, packed: Packed | None
) -> tuple[Tensor, State]:
    learns = _learns(*tensors.in_order())
    states, _, last_h, last_c = sequence(kind, tensors, None, keep=every or learns, packed=packed)
    last: State = (last_h[0],) if len(initial) == 1 else (last_h[0], last_c[0])
    if not every:
        return states, last
    return modulus(states[0]) if kind.activation == "abs" else states[0], last


def _tensors(
    factors: Factors, inputs: Inputs, initial: State, candidate_bias: Tensor | None
) -> Tensors:
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
        candidate_bias=None if candidate_bias is None else candidate_bias.unsqueeze(0),
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


def _biased(reference: Reference, candidate_bias: Tensor | None) -> Reference:
    if candidate_bias is None:
        return reference
    return partial(reference, candidate_bias=candidate_bias)


def _looped(
    reference: Reference, factors: Factors, projections: Tensor, initial: State, *, every: bool
) -> tuple[Tensor, State]:
    steps = reference(factors, projections, initial)
    return _collected(steps) if every else (initial[0].new_empty(0), _last(steps))


def _graphed(
    kind: Kind,
    reference: Reference,
    factors: Factors,
    inputs: Inputs,
    initial: State,
    *,
    every: bool,
    candidate_bias: Tensor | None,
) -> tuple[Tensor, State]:
    form, parts = _taken_apart(factors)
    biases = () if candidate_bias is None else (candidate_bias,)
    begin, end = len(parts), len(parts) + len(initial)

    def loop(projections: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        matrices, own = _put_together(form, tensors[:begin]), tensors[begin:end]
        # The graph's own copy: a cell's bias would be that of the cell which was recorded.
        biased = _biased(reference, next(iter(tensors[end:]), None))
        states, last = _looped(biased, matrices, projections, own, every=every)
        return (states, *last) if every else last

    name = kind, form, every, len(biases)
    results = cuda_graphs.run(name, loop, (inputs.projections(), *parts, *initial, *biases))
    return (results[0], results[1:]) if every else (initial[0].new_empty(0), results)


def _is_taken_apart(factors: Factors) -> bool:
    if isinstance(factors, MaskedFactors):
        return _is_taken_apart(factors.inner)
    return isinstance(factors, DenseFactors | LowRankFactors)


def _taken_apart(factors: Factors) -> tuple[tuple[type, ...], tuple[Tensor, ...]]:
    """The classes that make factors up, the outermost first, and their tensors."""
    if isinstance(factors, MaskedFactors):
        form, tensors = _taken_apart(factors.inner)
        return (MaskedFactors, *form), (factors.mask, *tensors)
    if isinstance(factors, DenseFactors):
        return (DenseFactors,), (factors.weight,)
    assert isinstance(factors, LowRankFactors)
    diagonal = () if factors.diagonal is None else (factors.diagonal,)
    return (LowRankFactors,), (factors.left, factors.right, *diagonal)


def _put_together(form: Sequence[type], tensors: Sequence[Tensor]) -> Factors:
    outer, *others = form
    if outer is MaskedFactors:
        mask, *inner = tensors
        return MaskedFactors(_put_together(others, inner), mask)
    return outer(*tensors)


def _collected(steps: Iterator[State]) -> tuple[Tensor, State]:
    states = list(steps)
    return torch.stack([h for h, *_ in states]), states[-1]


def _last(steps: Iterator[State]) -> State:
    """The last state, keeping no other."""
    last = next(steps)
    for state in steps:
        last = state
    return last
