"""Whether a graph computes in torch what onnxruntime computes."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch

from models.graphs.interpreter.graph_module import Feed, GraphModule, feed_tensors
from models.graphs.sessions import GraphSession

Array = np.ndarray[Any, Any]

_AT_ONCE = 64
"""Values that are asked of the runtime in one call, which bounds the memory they take."""


@dataclass(frozen=True, kw_only=True)
class Equality:
    """How far answers of torch are from the runtime's."""

    difference: float
    """The largest difference of a number, as a share of the largest number of its output, or of 1
    if that is larger; infinite where shapes differ or only one of both is not finite."""
    tolerance: float
    output: str | None = None
    """The graph's output that differs most."""
    operator: str | None = None
    node: str | None = None
    """The first node whose output differs by more than the tolerance, and its operator."""
    value: str | None = None
    """That output's name."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs by more than the tolerance."""
        return self.difference <= self.tolerance

    def sentence(self) -> str:
        """What was found, for a report."""
        if self.equal:
            return f"torch and onnxruntime differ by {self.difference:.1e} at most"
        where = f"output {self.output} differs by {self.difference:.1e} of {self.tolerance:.1e}"
        if self.operator is None:
            return where
        return f"{where}; the first node that does is {self.operator} ({self.node})"


def equal_to_runtime(
    model: onnx.ModelProto, module: GraphModule, feeds: Iterable[Feed], tolerance: float = 1e-4
) -> Equality:
    """Compare all outputs on all feeds, and find the first node that differs where one does.

    The module has the model's own numbers: nothing is replaced or trained yet.

    Raises:
        GraphRefused: onnxruntime does not load the model, or does not run it on a feed.
        InterpreterError: torch does not run it.
    """
    session = _session(model)
    worst, output = 0.0, None
    for feed in feeds:
        expected = session.run(feed, module.outputs).values()
        found = _answers(module, feed)
        for name, wanted, one in zip(module.outputs, expected, found, strict=True):
            share = difference(wanted, one)
            if share > worst:
                worst, output = share, name
        if worst > tolerance:
            operator, node, value = _first_that_differs(model, module, feed, tolerance)
            return Equality(
                difference=worst,
                tolerance=tolerance,
                output=output,
                operator=operator,
                node=node,
                value=value,
            )
    return Equality(difference=worst, tolerance=tolerance, output=output)


def difference(expected: Array, found: Array) -> float:
    """The largest difference as a share of the largest number, or of 1; see `Equality`."""
    if expected.shape != found.shape:
        return float("inf")
    if expected.size == 0:
        return 0.0
    wanted, got = expected.astype(np.float64), found.astype(np.float64)
    # Masks make infinities that both have; those are equal.
    with np.errstate(invalid="ignore"):
        apart = wanted - got
    apart = np.where((wanted == got) | (np.isnan(wanted) & np.isnan(got)), 0.0, apart)
    if not np.isfinite(apart).all():
        return float("inf")
    finite = np.abs(wanted[np.isfinite(wanted)])
    return float(np.abs(apart).max() / max(1.0, finite.max(initial=0.0)))


@torch.no_grad()
def _answers(module: GraphModule, feed: Feed) -> list[Array]:
    found = module(feed_tensors(feed, module.device))
    return [found[name].float().cpu().numpy() for name in module.outputs]


@torch.no_grad()
def _first_that_differs(
    model: onnx.ModelProto, module: GraphModule, feed: Feed, tolerance: float
) -> tuple[str | None, str | None, str | None]:
    """Operator, name and output of the first node whose output differs.

    Nodes are asked for in their order, some at a time: what lies behind the first is not asked for.
    """
    walked = module.walk(feed_tensors(feed, module.device))
    named = (
        (node, name, value.float().cpu().numpy())
        for node, outputs in walked
        for name, value in outputs.items()
    )
    while part := list(itertools.islice(named, _AT_ONCE)):
        names = [name for _, name, _ in part]
        expected = _session(model, names).run(feed, names).values()
        for (node, name, found), wanted in zip(part, expected, strict=True):
            if difference(wanted, found) > tolerance:
                return node.operator, node.name, name
    return None, None, None


def _session(model: onnx.ModelProto, within: Sequence[str] = ()) -> GraphSession:
    """The model in onnxruntime, unoptimised where values within it are asked for."""
    content = _with_outputs(model, within).SerializeToString()
    return GraphSession(content, level="ORT_DISABLE_ALL" if within else "ORT_ENABLE_ALL")


def _with_outputs(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """A copy that gives values within it, too."""
    if not names:
        return model
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    present = {value.name for value in model.graph.output}
    # A description without a type leaves it to the runtime to infer it.
    wider.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in names if name not in present
    )
    return wider
