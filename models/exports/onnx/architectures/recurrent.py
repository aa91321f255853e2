"""Recurrent networks: a standard node per layer where there is one for it, else a loop."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.architectures.inputs import InputLayer
from models.architectures.recurrent_network import Cell, RecurrentNetwork
from models.exports.onnx.graph import Graph, Port
from models.exports.onnx.matrices import Stored, stored_layers
from models.exports.onnx.matrices.arithmetic import BOOLEAN, INTEGER_32, cast
from models.exports.onnx.matrices.numbers import parameter
from models.exports.onnx.products import affine, affine_each
from models.linear import Affine

State = list[str]
"""The values `[B, n]` that make up a state, h first."""

Step = Callable[[Graph, Stored, Any, State, Sequence[str]], State]
"""One step of a cell, which the third argument is: a state and G addends `[B, n]` to the next."""


@dataclass(frozen=True)
class StandardNode:
    """One of ONNX's own recurrent operators, which take matrices as a whole."""

    operator: str
    order: tuple[int, ...]
    """Which of our gates stands at each place of the operator's."""
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True)
class CellGraph:
    """How a cell is written: step by step, and as a standard node where one computes it."""

    step: Step
    standard: StandardNode | None = None


@dataclass(frozen=True)
class Ends:
    """What a recurrent network is given beside x, and what it gives beside its answer."""

    lengths: str | None = None
    """Steps of each sequence, int64 `[B]`, from 1 to T; None: all have T."""
    states: Sequence[str] = ()
    """The states before the first step, `[layers, B, n]` for each part; none: the network's own."""


@dataclass(frozen=True)
class _Layer:
    """A layer with what it reads: x `[T, B, in]` and the state before the first step."""

    cell: Cell
    matrices: Stored
    inputs: InputLayer
    x: str
    first: State | None
    """None: zeros."""
    lengths: str | None
    return_sequences: bool


@dataclass(frozen=True)
class _Result:
    """All states `[T, B, n]`, where they are asked for, and the last one's parts `[B, n]`."""

    states: str
    last: State


def write_recurrent(
    graph: Graph, cell: CellGraph, network: RecurrentNetwork, x: str, ends: Ends
) -> tuple[str, list[str]]:
    """`[B, T, input_size]` -> `[B, output_size]`, or `[B, T, output_size]` for every step.

    With an embedding x is `[B, T]`. The second value has the parts `[layers, B, n]` of the state
    after the last step.
    """
    batch = graph.apply("Shape", x, start=0, end=1)
    if network.embedding is not None:
        x = graph.apply("Gather", parameter(graph, network.embedding, "weight"), x, axis=0)
    below = graph.apply("Transpose", x, perm=[1, 0, 2])
    results: list[_Result] = []
    layers = zip(
        network.cells, stored_layers(graph, network.recurrent), network.inputs, strict=True
    )
    for index, (module, matrices, inputs) in enumerate(layers):
        assert isinstance(module, Cell)
        assert isinstance(inputs, InputLayer)
        return_sequences = network.every_step or index + 1 < len(network.cells)
        first = _first_state(graph, network, index, batch, ends)
        layer = _Layer(module, matrices, inputs, below, first, ends.lengths, return_sequences)
        results.append(_write_layer(graph, cell, layer, parts=network.state_parts, batch=batch))
        below = results[-1].states
    answered = results[-1].last[0]
    if network.every_step:
        answered = graph.apply("Transpose", below, perm=[1, 0, 2])
    stacked = zip(*(result.last for result in results), strict=True)
    return affine(graph, network.readout, answered), [_stack(graph, part) for part in stacked]


def _stack(graph: Graph, layers: Sequence[str]) -> str:
    """A part of each layer's state `[B, n]` -> `[layers, B, n]`."""
    axis = graph.integers(0)
    parts = [graph.apply("Unsqueeze", part, axis) for part in layers]
    return parts[0] if len(parts) == 1 else graph.apply("Concat", *parts, axis=0)


def _write_layer(
    graph: Graph, cell: CellGraph, layer: _Layer, *, parts: int, batch: str
) -> _Result:
    if cell.standard is None or graph.factored:
        return _write_loop(graph, cell.step, layer, parts=parts, batch=batch)
    return _write_node(graph, cell.standard, layer, parts=parts)


def _write_node(graph: Graph, node: StandardNode, layer: _Layer, *, parts: int) -> _Result:
    """The operator's leading dimension is that of its directions, of which there is one."""
    gates, size, _ = layer.matrices.shape
    order = list(node.order)
    lengths = "" if layer.lengths is None else cast(graph, layer.lengths, INTEGER_32)
    axis = graph.integers(0)
    first = () if layer.first is None else layer.first
    states, *last = graph.apply_many(
        node.operator,
        layer.x,
        _input_matrices(graph, layer.inputs, gates, order),
        _ordered(graph, layer.matrices.whole(), gates * size, order),
        _biases(graph, layer, order),
        lengths,
        *(graph.apply("Unsqueeze", part, axis) for part in first),
        outputs=1 + parts,
        hidden_size=size,
        **node.attributes,
    )
    return _Result(
        graph.apply("Squeeze", states, graph.integers(1)) if layer.return_sequences else "",
        [graph.apply("Squeeze", part, axis) for part in last],
    )


def _input_matrices(graph: Graph, inputs: InputLayer, gates: int, order: list[int]) -> str:
    """`[1, G*n, in]`, the operator's first gate first."""
    if isinstance(inputs, Affine):
        rows = inputs.plain_weight().shape[0]
        by_gate = graph.integers(gates, rows // gates, -1)
        weight = graph.apply("Reshape", parameter(graph, inputs, "weight"), by_gate)
        return _ordered(graph, weight, rows, order)
    (matrices,) = stored_layers(graph, inputs.linear)
    return _ordered(graph, matrices.whole(), gates * matrices.shape[1], order)


def _ordered(graph: Graph, matrices: str, rows: int, order: list[int]) -> str:
    """`[G, n, in]` -> `[1, G*n, in]`, the operator's first gate first."""
    if order != sorted(order):
        matrices = graph.apply("Gather", matrices, graph.integers(*order), axis=0)
    return graph.apply("Reshape", matrices, graph.integers(1, rows, -1))


def _biases(graph: Graph, layer: _Layer, order: list[int]) -> str:
    """Both `[1, G*n]` side by side; zeros are made when the file is loaded."""
    gates, size, _ = layer.matrices.shape
    outer, inner = layer.inputs.bias, layer.cell.recurrent_bias
    if outer is None and inner is None:
        return ""
    sides = [
        # Not `ConstantOfShape`: without a value, which takes room, not all runtimes know its type.
        graph.apply("Expand", graph.number(0.0), graph.integers(1, gates * size))
        if bias is None
        else graph.constant(bias.reshape(gates, size)[order].reshape(1, -1))
        for bias in (outer, inner)
    ]
    return graph.apply("Concat", *sides, axis=1)


def _write_loop(graph: Graph, step: Step, layer: _Layer, *, parts: int, batch: str) -> _Result:
    """The inputs of all steps are projected at once, and a `Scan` runs over the steps.

    Beyond a sequence's length its state stays as it is.
    """
    gates = layer.matrices.shape[0]
    scanned = affine_each(graph, layer.inputs, layer.x, gates)
    if layer.lengths is not None:
        scanned.append(_running(graph, layer.x, layer.lengths))
    first = layer.first
    if first is None:
        shape = graph.apply("Concat", batch, graph.integers(layer.matrices.shape[1]), axis=0)
        first = [graph.apply("ConstantOfShape", shape)] * parts
    body = graph.body()
    before = [graph.name() for _ in first]
    read = [graph.name() for _ in scanned]
    after = step(body, layer.matrices, layer.cell, before, read[:gates])
    running = read[gates:]
    for mask in running:
        pairs = zip(after, before, strict=True)
        after = [body.apply("Where", mask, new, old) for new, old in pairs]
    # Outputs of a body are different from each other.
    collected = [body.apply("Identity", after[0])] if layer.return_sequences else []
    described = body.described(
        graph.name(),
        inputs=[
            *(Port(name, None) for name in (*before, *read[:gates])),
            *(Port(name, None, BOOLEAN) for name in running),
        ],
        outputs=[Port(name, None) for name in (*after, *collected)],
    )
    outputs = graph.apply_many(
        "Scan",
        *first,
        *scanned,
        outputs=len(first) + layer.return_sequences,
        body=described,
        num_scan_inputs=len(scanned),
    )
    return _Result(outputs[-1] if layer.return_sequences else "", outputs[: len(first)])


def _running(graph: Graph, x: str, lengths: str) -> str:
    """Which steps of x `[T, B, in]` are a sequence's own: `[T, B, 1]`."""
    steps = graph.apply("Squeeze", graph.apply("Shape", x, start=0, end=1))
    step = graph.apply("Range", graph.integer(0), steps, graph.integer(1))
    step = graph.apply("Unsqueeze", step, graph.integers(1, 2))
    return graph.apply("Less", step, graph.apply("Unsqueeze", lengths, graph.integers(1)))


def _first_state(
    graph: Graph, network: RecurrentNetwork, layer: int, batch: str, ends: Ends
) -> State | None:
    """The state before the first step for each sample of a batch of `batch`; None for zeros."""
    if ends.states:
        place = graph.integer(layer)
        return [graph.apply("Gather", part, place, axis=0) for part in ends.states]
    if network.initial_state is None:
        return None
    shape = graph.apply("Concat", batch, graph.integers(network.recurrent.in_features), axis=0)
    parts = network.initial_state[layer]
    return [graph.apply("Expand", graph.constant(part), shape) for part in parts]
