"""Whether a graph computes in torch what onnxruntime computes."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import torch

from models.graphs.interpreter.graph_module import Feed, GraphModule, feed_tensors
from models.graphs.sessions import GraphSession

Array = np.ndarray[Any, Any]

MOST_BY_ROUNDING = 10
"""By how many times the tolerance outputs may differ where no node does by itself."""
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
    """The first node that computes something else of the runtime's numbers, and its operator."""
    value: str | None = None
    """That output's name."""
    same_nodes: bool = False
    """Whether outputs differ although each node computes the same of the same numbers."""

    @property
    def equal(self) -> bool:
        """Whether nothing differs by more than the tolerance, or than rounding that adds up."""
        allowed = self.tolerance * (MOST_BY_ROUNDING if self.same_nodes else 1)
        return self.difference <= allowed

    def sentence(self) -> str:
        """What was found, for a report."""
        if self.equal:
            return f"torch and onnxruntime differ by {self.difference:.1e} at most"
        where = f"output {self.output} differs by {self.difference:.1e} of {self.tolerance:.1e}"
        if self.same_nodes:
            return (
                f"{where}; each node computes the same of the same numbers, but what rounding adds "
                f"up to is more than {MOST_BY_ROUNDING} times as much"
            )
        return f"{where}; the first node that does is {self.operator} ({self.node})"


def equal_to_runtime(
    model: onnx.ModelProto, module: GraphModule, feeds: Iterable[Feed], tolerance: float = 1e-4
) -> Equality:
    """Compare all outputs on all feeds, and find the first node that differs where one does.

    Where outputs differ, each node is given what the runtime computed before it. Some networks
    amplify rounding, as a variance does that is the difference of two mean squares: if all nodes
    compute the same of the same numbers, outputs may differ by `MOST_BY_ROUNDING` times as much.
    The module has the model's own numbers: nothing is replaced or trained yet.

    Raises:
        GraphRefused: onnxruntime does not load the model, or does not run it on a feed.
        InterpreterError: torch does not run it.
    """
    session = _session(model)
    worst = Equality(difference=0.0, tolerance=tolerance)
    for feed in feeds:
        found = _compared(session, model, module, feed, tolerance)
        if not found.equal:
            return found
        worst = max(worst, found, key=lambda one: one.difference)
    return worst


def _compared(
    session: GraphSession,
    model: onnx.ModelProto,
    module: GraphModule,
    feed: Feed,
    tolerance: float,
) -> Equality:
    """On one feed."""
    expected = session.run(feed, module.outputs).values()
    answers = zip(module.outputs, expected, _answers(module, feed), strict=True)
    shares = {name: difference(wanted, one) for name, wanted, one in answers}
    output = max(shares, key=shares.__getitem__)
    worst = Equality(difference=shares[output], tolerance=tolerance, output=output)
    if worst.equal:
        return worst
    operator, node, value = _first_that_differs(model, module, feed, tolerance)
    return replace(worst, operator=operator, node=node, value=value, same_nodes=operator is None)


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
    """Operator, name and output of the first node whose output differs by its own doing.

    Each node reads what the runtime gave for the nodes before it. They are asked for in their
    order, some at a time: what lies behind the first that differs is not asked for.
    """
    walked = module.walk(feed_tensors(feed, module.device))
    steps = module.plan.steps
    for start in range(0, len(steps), _AT_ONCE):
        part = steps[start : start + _AT_ONCE]
        names = [name for step in part for name in step.outputs]
        expected = _session(model, names).run(feed, names)
        given = feed_tensors(expected, module.device)
        for node, outputs in itertools.islice(walked, len(part)):
            for name, value in outputs.items():
                if difference(expected[name], value.float().cpu().numpy()) > tolerance:
                    return node.operator, node.name, name
            # Whole numbers may be wider here than they are in the runtime.
            outputs.update({name: given[name].to(one.dtype) for name, one in outputs.items()})
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
