"""Recurrent networks: a standard node per layer where there is one for it, else a loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from models.architectures.recurrent_network import Cell, RecurrentNetwork
from models.exports.onnx.graph import Graph
from models.exports.onnx.products import affine
from models.forms import Form, Whole

State = list[str]
"""The values `[B, n]` that make up a state, h first."""

Step = Callable[[Graph, Form, Any, State, str], State]
"""One step of a cell, which the third argument is: a state and an addend `[B, G*n]` to the next."""


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
class _Layer:
    """A layer with what it reads: x `[T, B, in]` and the states before the first step."""

    cell: Cell
    form: Form
    inputs: Any
    x: str
    first: State
    return_sequences: bool

    @property
    def parts(self) -> int:
        return len(self.first)


def write_recurrent(graph: Graph, cell: CellGraph, network: RecurrentNetwork, x: str) -> str:
    """`[B, T, input_size]` -> `[B, output_size]`, or `[B, T, output_size]` for every step.

    With an embedding x is `[B, T]`.
    """
    gates = network.recurrent.slot.gates
    batch = graph.apply("Shape", x, start=0, end=1)
    if network.embedding is not None:
        x = graph.apply("Gather", graph.constant(network.embedding.weight), x, axis=0)
    below = graph.apply("Transpose", x, perm=[1, 0, 2])
    last = below
    layers = zip(
        network.cells,
        network.recurrent.form().split(gates),
        network.inputs,
        strict=True,
    )
    for index, (module, form, inputs) in enumerate(layers):
        assert isinstance(module, Cell)
        return_sequences = network.every_step or index + 1 < len(network.cells)
        first = _first_state(graph, network, index, batch)
        layer = _Layer(module, form, inputs, below, first, return_sequences)
        below, last = _write_layer(graph, cell, layer)
    if network.every_step:
        last = graph.apply("Transpose", below, perm=[1, 0, 2])
    return affine(graph, network.readout, last)


def _write_layer(graph: Graph, cell: CellGraph, layer: _Layer) -> tuple[str, str]:
    """All states `[T, B, n]` (nothing of use without `every`), and the last one."""
    inputs, recurrent = layer.inputs.plain_parts(), layer.form.parts()
    if cell.standard is None or inputs is None or not isinstance(recurrent, Whole):
        return _write_loop(graph, cell.step, layer)
    return _write_node(graph, cell.standard, layer, recurrent.weight, *inputs)


def _write_node(
    graph: Graph,
    node: StandardNode,
    layer: _Layer,
    recurrent: Tensor,
    weight: Tensor,
    bias: Tensor | None,
) -> tuple[str, str]:
    """The operator's leading dimension is that of its directions, of which there is one."""
    gates, size, _ = recurrent.shape
    order = list(node.order)
    no_bias = weight.new_zeros(gates * size)
    inner = layer.cell.recurrent_bias
    both = bias, None if inner is None else inner.flatten()
    added = torch.stack([no_bias if one is None else one for one in both]).view(2, gates, size)
    axis = graph.integers(0)
    states, last, *_ = graph.apply_many(
        node.operator,
        layer.x,
        graph.constant(weight.view(gates, size, -1)[order].reshape(1, gates * size, -1)),
        graph.constant(recurrent[order].reshape(1, gates * size, size)),
        graph.constant(added[:, order].reshape(1, -1)),
        "",  # all sequences of a batch have one length
        *(graph.apply("Unsqueeze", part, axis) for part in layer.first),
        outputs=1 + layer.parts,
        hidden_size=size,
        **node.attributes,
    )
    return graph.apply("Squeeze", states, graph.integers(1)), graph.apply("Squeeze", last, axis)


def _write_loop(graph: Graph, step: Step, layer: _Layer) -> tuple[str, str]:
    """The inputs of all steps are projected at once, and a `Scan` runs over the steps."""
    addends = affine(graph, layer.inputs, layer.x)
    body = graph.body()
    before = [graph.name("state") for _ in layer.first]
    addend = graph.name("addend")
    after = step(body, layer.form, layer.cell, before, addend)
    # Outputs of a body are its own and different from each other.
    results = [body.apply("Identity", value) for value in after]
    collected = [body.apply("Identity", after[0])] if layer.return_sequences else []
    described = body.described(
        graph.name("step"),
        inputs=[(name, None) for name in (*before, addend)],
        outputs=[(name, None) for name in (*results, *collected)],
    )
    last, *others = graph.apply_many(
        "Scan",
        *layer.first,
        addends,
        outputs=layer.parts + layer.return_sequences,
        body=described,
        num_scan_inputs=1,
    )
    return others[-1] if layer.return_sequences else last, last


def _first_state(graph: Graph, network: RecurrentNetwork, layer: int, batch: str) -> State:
    """The state before the first step, repeated for each sample of a batch of `batch`."""
    size = network.recurrent.in_features
    shape = graph.apply("Concat", batch, graph.integers(size), axis=0)
    if network.initial_state is None:
        parts = list(network.readout.plain_weight().new_zeros(network.state_parts, 1))
    else:
        parts = list(network.initial_state[layer])
    return [graph.apply("Expand", graph.constant(part), shape) for part in parts]
