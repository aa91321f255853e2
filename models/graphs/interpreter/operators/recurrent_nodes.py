"""LSTM, GRU and RNN, in either direction or both.

torch's own kernels run what they can; sequences of unequal lengths, other activations, and gates
that are reset before the product go step by step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable

RECURRENT = OperatorTable()

Activation: TypeAlias = Callable[[Tensor], Tensor]
States: TypeAlias = tuple[Tensor, ...]

ACTIVATIONS: Mapping[str, Activation] = {
    "relu": F.relu,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "tanh": torch.tanh,
}
"""Those without numbers of their own; ONNX compares their names without case."""


@dataclass(frozen=True)
class Direction:
    """The weights of one direction, gates below one another in ONNX's order, and its first states.

    W `[g n, inputs]`, R `[g n, n]`, their biases `[g n]`, states `[B, n]` for g gates of n units.
    """

    w: Tensor
    r: Tensor
    w_bias: Tensor
    r_bias: Tensor
    states: States
    activations: Sequence[str]

    def functions(self) -> list[Activation]:
        """Its activations, in the order in which the standard names them."""
        return [ACTIVATIONS[name] for name in self.activations]


@dataclass(frozen=True)
class Cell:
    """What tells the three operators apart."""

    activations: tuple[str, ...]
    """By default."""
    order: tuple[int, ...]
    """Where torch's gates are among ONNX's."""
    num_states: int
    step: Callable[[Node, Tensor, States, Direction], States]
    """The next states of `x Wᵀ` with W's bias `[B, g n]` and the states."""
    whole: Callable[[Node, Tensor, Direction, list[Tensor]], tuple[Tensor, States] | None]
    """All steps and the last states by torch's kernel, of weights in torch's order; or None."""


def _rnn_step(_node: Node, given: Tensor, states: States, own: Direction) -> States:
    (activation,) = own.functions()
    return (activation(given + F.linear(states[0], own.r, own.r_bias)),)


def _gru_step(node: Node, given: Tensor, states: States, own: Direction) -> States:
    """The standard's equations; its update gate z keeps the old state."""
    gate, candidate = own.functions()
    (h,), n = states, states[0].shape[-1]
    carried = F.linear(h, own.r[: 2 * n], own.r_bias[: 2 * n])
    z, r = gate(given[:, : 2 * n] + carried).chunk(2, dim=-1)
    r_h, bias = own.r[2 * n :], own.r_bias[2 * n :]
    if node.flag("linear_before_reset"):
        inner = r * F.linear(h, r_h, bias)
    else:
        inner = F.linear(r * h, r_h, bias)
    return ((1 - z) * candidate(given[:, 2 * n :] + inner) + z * h,)


def _lstm_step(_node: Node, given: Tensor, states: States, own: Direction) -> States:
    gate, candidate, output = own.functions()
    h, c = states
    i, o, f, g = (given + F.linear(h, own.r, own.r_bias)).chunk(4, dim=-1)
    c = gate(f) * c + gate(i) * candidate(g)
    return gate(o) * output(c), c


def _rnn_whole(
    _node: Node, x: Tensor, own: Direction, weights: list[Tensor]
) -> tuple[Tensor, States] | None:
    kernels = {"tanh": torch.rnn_tanh, "relu": torch.rnn_relu}
    kernel = kernels.get(own.activations[0])
    if kernel is None:
        return None
    steps, h = kernel(x, own.states[0][None], weights, True, 1, 0.0, _trains(), False, False)
    return steps, (h[0],)


def _gru_whole(
    node: Node, x: Tensor, own: Direction, weights: list[Tensor]
) -> tuple[Tensor, States] | None:
    if not node.flag("linear_before_reset") or tuple(own.activations) != GRU.activations:
        return None
    steps, h = torch.gru(x, own.states[0][None], weights, True, 1, 0.0, _trains(), False, False)
    return steps, (h[0],)


def _lstm_whole(
    _node: Node, x: Tensor, own: Direction, weights: list[Tensor]
) -> tuple[Tensor, States] | None:
    if tuple(own.activations) != LSTM.activations:
        return None
    first = [state[None] for state in own.states]
    steps, h, c = torch.lstm(x, first, weights, True, 1, 0.0, _trains(), False, False)
    return steps, (h[0], c[0])


def _trains() -> bool:
    # Kernels on GPUs keep what a gradient needs only if they are said to train.
    return torch.is_grad_enabled()


RNN = Cell(("tanh",), (0,), 1, _rnn_step, _rnn_whole)
GRU = Cell(("sigmoid", "tanh"), (1, 0, 2), 1, _gru_step, _gru_whole)
LSTM = Cell(("sigmoid", "tanh", "tanh"), (0, 2, 3, 1), 2, _lstm_step, _lstm_whole)


def _fault(node: Node) -> str | None:
    """What the standard has and hardly a file uses."""
    if node.has_input(7):
        return "with peepholes (input P)"
    for option in ("clip", "activation_alpha", "activation_beta"):
        if node.has(option):
            return f"with {option}"
    for option in ("layout", "input_forget"):
        if node.flag(option):
            return f"with {option}"
    unknown = sorted({name for name in _named(node) if name not in ACTIVATIONS})
    return f"with activation {unknown[0]}" if unknown else None


def _named(node: Node) -> list[str]:
    return [name.lower() for name in node.texts("activations") or []]


@RECURRENT.operator("RNN", fault=_fault)
def rnn(node: Node, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    """Plain recurrence."""
    return _computed(node, RNN, inputs)


@RECURRENT.operator("GRU", fault=_fault)
def gru(node: Node, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    """Gated recurrent units, reset before or after the product."""
    return _computed(node, GRU, inputs)


@RECURRENT.operator("LSTM", fault=_fault)
def lstm(node: Node, *inputs: Tensor | None) -> tuple[Tensor, ...]:
    """Long short-term memory."""
    return _computed(node, LSTM, inputs)


def _computed(node: Node, cell: Cell, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
    """Steps `[T, directions, B, n]` of `[T, B, inputs]`, and last states `[directions, B, n]`."""
    x = inputs[0]
    if x is None:
        raise node.refuse("there is no input X")
    lengths = inputs[4] if len(inputs) > 4 else None
    backwards = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    ways = backwards[node.text("direction", "forward")]
    found = [
        _one_way(node, cell, x, _direction(node, cell, x, inputs, place, len(ways)), lengths, way)
        for place, way in enumerate(ways)
    ]
    steps = torch.stack([one for one, _ in found], dim=1)
    ends = zip(*(states for _, states in found), strict=True)
    return steps, *(torch.stack(part) for part in ends)


def _direction(
    node: Node, cell: Cell, x: Tensor, inputs: Sequence[Tensor | None], place: int, ways: int
) -> Direction:
    given = [*inputs, *[None] * (7 - len(inputs))]
    w, r, bias = given[1], given[2], given[3]
    if w is None or r is None:
        raise node.refuse("there are no weights W and R")
    rows, n = r.shape[1:]
    biases = x.new_zeros(2 * rows) if bias is None else bias[place]
    states = tuple(
        x.new_zeros(x.shape[1], n) if state is None else state[place]
        for state in given[5 : 5 + cell.num_states]
    )
    names = _named(node) or list(cell.activations) * ways
    own = names[place * len(cell.activations) : (place + 1) * len(cell.activations)]
    return Direction(w[place], r[place], biases[:rows], biases[rows:], states, own)


def _one_way(
    node: Node, cell: Cell, x: Tensor, own: Direction, lengths: Tensor | None, backwards: bool
) -> tuple[Tensor, States]:
    """Steps `[T, B, n]` in the input's order, and the states after the last one computed."""
    if lengths is None:
        x = x.flip(0) if backwards else x
        found = cell.whole(node, x, own, _in_order_of_torch(cell, own))
        steps, states = found or _step_by_step(node, cell, x, own, None)
        return (steps.flip(0) if backwards else steps), states
    at = torch.arange(len(x), device=x.device).unsqueeze(1)
    counts = lengths.to(x.device).unsqueeze(0)
    # Each sample is reversed within its own length.
    places = torch.where(at < counts, counts - 1 - at, at).unsqueeze(-1)
    x = x.gather(0, places.expand_as(x)) if backwards else x
    steps, states = _step_by_step(node, cell, x, own, at < counts)
    return (steps.gather(0, places.expand_as(steps)) if backwards else steps), states


def _in_order_of_torch(cell: Cell, own: Direction) -> list[Tensor]:
    def moved(rows: Tensor) -> Tensor:
        parts = rows.chunk(len(cell.order))
        return torch.cat([parts[place] for place in cell.order])

    return [moved(rows) for rows in (own.w, own.r, own.w_bias, own.r_bias)]


def _step_by_step(
    node: Node, cell: Cell, x: Tensor, own: Direction, counted: Tensor | None
) -> tuple[Tensor, States]:
    """Where a step is not counted `[T, B]` the states stay, and the output is 0."""
    given = F.linear(x, own.w, own.w_bias)
    states, steps = own.states, list[Tensor]()
    for at, part in enumerate(given):
        after = cell.step(node, part, states, own)
        output = after[0]
        if counted is not None:
            here = counted[at].unsqueeze(-1)
            pairs = zip(after, states, strict=True)
            after = tuple(torch.where(here, new, old) for new, old in pairs)
            output = torch.where(here, output, torch.zeros_like(output))
        states = after
        steps.append(output)
    if not steps:
        return x.new_zeros(0, *states[0].shape), states
    return torch.stack(steps), states
