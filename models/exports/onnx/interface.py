"""What stands around a network, as operators: a writer for each input step and each answer."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.arithmetic import INTEGER, cast
from models.interface import (
    AnyAnswer,
    Classes,
    Divide,
    FillMissing,
    InputStep,
    Interface,
    Labels,
    Layout,
    Numbers,
    OneHot,
    Reorder,
    Standardise,
)

LABEL = "label"

Read = Callable[[Graph, Any, str], str]
Say = Callable[[Graph, Any, str], tuple[str, str | None]]
"""An answer's numbers and what it decides, where it decides something."""


def read_samples(
    graph: Graph, interface: Interface, x: str, lengths: str | None, *, stream: bool
) -> str:
    """Raw samples `[B, *sample]` as the network reads them.

    Of a stream, single steps `[B, steps, features]`: what is done to a sample as a whole is not.
    """
    for step in interface.inputs:
        if not (stream and step.whole_sample):
            x = INPUT_STEPS[type(step)](graph, step, x)
    if lengths is None:
        return x
    steps = graph.apply("Squeeze", graph.apply("Shape", x, start=1, end=2))
    step = graph.apply("Range", graph.integer(0), steps, graph.integer(1))
    step = graph.apply("Unsqueeze", step, graph.integers(0))
    valid = graph.apply("Less", step, graph.apply("Unsqueeze", lengths, graph.integers(1)))
    if interface.features:
        valid = graph.apply("Unsqueeze", valid, graph.integers(2))
    zero = graph.integer(0) if not interface.features else graph.number(0.0)
    return graph.apply("Where", valid, x, zero)


def clipped_lengths(graph: Graph, x: str, lengths: str) -> str:
    """Lengths from 1 to the steps of x `[B, T, ...]`."""
    steps = graph.apply("Squeeze", graph.apply("Shape", x, start=1, end=2))
    return graph.apply("Min", graph.apply("Max", lengths, graph.integer(1)), steps)


@dataclass(frozen=True)
class Missing:
    """Zeros, and NaN where a number that was read is none."""

    answers: str
    """To be added to answers: `[B, 1]`, or `[B, T, 1]` from the step on that has no number."""
    ends: str
    """To be added to the states after the last step: `[B, 1]`."""


def missing_numbers(graph: Graph, x: str, states: Sequence[str], *, each_step: bool) -> Missing:
    """Of x `[B, T, F]` and the states before it: runtimes' recurrences take NaN for a number."""
    zero = graph.number(0.0)
    last = graph.integers(2)
    steps = graph.apply("ReduceSum", graph.apply("Mul", x, zero), last, keepdims=1)
    for state in states:
        # [layers, B, n] -> [B, 1, 1]
        none = graph.apply("Mul", state, zero)
        before = graph.apply("ReduceSum", none, graph.integers(0, 2), keepdims=0)
        steps = graph.apply("Add", steps, graph.apply("Unsqueeze", before, graph.integers(1, 2)))
    ends = graph.apply("ReduceSum", steps, graph.integers(1), keepdims=0)
    if not each_step:
        return Missing(ends, ends)
    return Missing(graph.apply("CumSum", steps, graph.integer(1)), ends)


def say(graph: Graph, answer: AnyAnswer, output: str) -> tuple[str, str | None]:
    """The answer's numbers, and what it decides; None where it decides nothing."""
    return ANSWERS[type(answer)](graph, answer, output)


def _divide(graph: Graph, step: Divide, x: str) -> str:
    return graph.apply("Div", x, graph.number(step.by))


def _reorder(graph: Graph, step: Reorder, x: str) -> str:
    order = torch.tensor(step.order, dtype=torch.int32)
    return graph.apply("Gather", x, graph.array(order.numpy()), axis=1)


def _layout(graph: Graph, step: Layout, x: str) -> str:
    used = graph.integers(step.steps * step.features)
    x = graph.apply("Slice", x, graph.integers(0), used, graph.integers(1))
    return graph.apply("Reshape", x, graph.integers(-1, step.steps, step.features))


def _one_hot(graph: Graph, step: OneHot, x: str) -> str:
    off_and_on = graph.constant(torch.tensor([0.0, 1.0]))
    return graph.apply("OneHot", x, graph.integer(step.symbols), off_and_on, axis=-1)


def _fill_missing(graph: Graph, step: FillMissing, x: str) -> str:
    values = graph.constant(torch.tensor(step.values))
    return graph.apply("Where", graph.apply("IsNaN", x), values, x)


def _standardise(graph: Graph, step: Standardise, x: str) -> str:
    high, low, deviations = (graph.constant(part) for part in step.parts())
    x = graph.apply("Sub", graph.apply("Sub", x, high), low)
    return graph.apply("Div", x, deviations)


def _classes(graph: Graph, _answer: Classes, output: str) -> tuple[str, str]:
    none = graph.apply("ReduceSum", output, graph.integers(-1), keepdims=0)
    largest = graph.apply("ArgMax", output, axis=-1, keepdims=0)
    return output, graph.apply("Where", graph.apply("IsNaN", none), graph.integer(-1), largest)


def _labels(graph: Graph, _answer: Labels, output: str) -> tuple[str, str]:
    chosen = graph.apply("Greater", output, graph.number(0.0))
    decided = cast(graph, chosen, INTEGER)
    decided = graph.apply("Where", graph.apply("IsNaN", output), graph.integer(-1), decided)
    return graph.apply("Sigmoid", output), decided


def _numbers(graph: Graph, answer: Numbers, output: str) -> tuple[str, None]:
    if not answer.means:
        return output, None
    deviations, means = (
        graph.constant(torch.tensor(part)) for part in (answer.deviations, answer.means)
    )
    return graph.apply("Add", graph.apply("Mul", output, deviations), means), None


INPUT_STEPS: Mapping[type[InputStep], Read] = {
    Divide: _divide,
    Reorder: _reorder,
    Layout: _layout,
    OneHot: _one_hot,
    FillMissing: _fill_missing,
    Standardise: _standardise,
}
"""How each input step is written."""

ANSWERS: Mapping[type[AnyAnswer], Say] = {Classes: _classes, Labels: _labels, Numbers: _numbers}
"""How each answer is written."""
