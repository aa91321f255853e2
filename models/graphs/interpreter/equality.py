"""Whether a graph computes in torch what onnxruntime computes."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from models.graphs.interpreter.graph_module import Feed, GraphModule, feed_tensors
from models.graphs.sessions import GraphSession

Array = np.ndarray[Any, Any]

MOST_BY_ROUNDING = 32
"""By how many times as much outputs may differ, where no node does by itself, as the runtime's own
answers move at most when each weight moves by its last place."""
_LAST_PLACE: Mapping[int, float] = {
    onnx.TensorProto.FLOAT: 2.0**-23,
    onnx.TensorProto.FLOAT16: 2.0**-10,
}
"""Of weights by their type, as a share of a number."""
_HALF = 2.0**-9
"""Tolerance for what the runtime gives in half precision: four times what that rounds by."""
_DRAWS = 3
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
    rounding: float | None = None
    """How far the runtime's own answers move at most when each weight moves by its last place;
    None where outputs are within the tolerance, or a node computes something else."""

    @property
    def allowed(self) -> float:
        """The tolerance, or what rounding adds up to if that is more."""
        return max(self.tolerance, MOST_BY_ROUNDING * (self.rounding or 0.0))

    @property
    def equal(self) -> bool:
        """Whether nothing differs by more than is allowed."""
        return self.difference <= self.allowed

    def sentence(self) -> str:
        """What was found, for a report."""
        if self.equal:
            return f"torch and onnxruntime differ by {self.difference:.1e} at most"
        where = f"output {self.output} differs by {self.difference:.1e} of {self.allowed:.1e}"
        if self.rounding is not None:
            return (
                f"{where}; each node computes the same of the same numbers, but that is more than "
                f"{MOST_BY_ROUNDING} times what a rounding of weights does ({self.rounding:.1e})"
            )
        return f"{where}; the first node that does is {self.operator} ({self.node})"


def equal_to_runtime(
    model: onnx.ModelProto, module: GraphModule, feeds: Iterable[Feed], tolerance: float = 1e-4
) -> Equality:
    """Compare all outputs on all feeds, and find the first node that differs where one does.

    Where outputs differ, each node is given what the runtime computed before it. Some networks
    amplify rounding on some samples, as a variance does that is the difference of two mean squares.
    If all nodes compute the same of the same numbers, outputs may therefore differ by
    `MOST_BY_ROUNDING` times as much as the runtime's move when its weights are rounded otherwise.
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
    answers = session.run(feed, module.outputs)
    found = zip(module.outputs, _answers(module, feed), strict=True)
    shares = {name: difference(answers[name], one) for name, one in found}
    output = max(shares, key=shares.__getitem__)
    allowed = _tolerance(answers[output], tolerance)
    worst = Equality(difference=shares[output], tolerance=allowed, output=output)
    if worst.equal:
        return worst
    operator, node, value = _first_that_differs(model, module, feed, tolerance)
    if operator is not None:
        return replace(worst, operator=operator, node=node, value=value)
    return replace(worst, rounding=_rounding(model, feed, output, answers[output]))


def _tolerance(expected: Array, tolerance: float) -> float:
    return max(tolerance, _HALF) if expected.dtype == np.float16 else tolerance


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
                apart = difference(expected[name], value.float().cpu().numpy())
                if apart > _tolerance(expected[name], tolerance):
                    return node.operator, node.name, name
            # Whole numbers may be wider here than they are in the runtime.
            outputs.update({name: given[name].to(one.dtype) for name, one in outputs.items()})
    return None, None, None


def _rounding(model: onnx.ModelProto, feed: Feed, output: str, expected: Array) -> float:
    """How far this output moves at most in some draws of other roundings of the weights."""
    models = (_rounded_otherwise(model, seed) for seed in range(_DRAWS))
    answers = (_session(one).run(feed, [output])[output] for one in models)
    return max(difference(expected, answer) for answer in answers)


def _rounded_otherwise(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy whose weights are numbers next to them, up or down by chance."""
    random = np.random.default_rng(seed)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for tensor in made.graph.initializer:
        if tensor.data_type in _LAST_PLACE:
            numbers = numpy_helper.to_array(tensor)
            steps = _LAST_PLACE[tensor.data_type] * random.choice((-1, 1), numbers.shape)
            moved = (numbers * (1 + steps)).astype(numbers.dtype)
            tensor.CopyFrom(numpy_helper.from_array(moved, tensor.name))
    return made


def _session(model: onnx.ModelProto, within: Sequence[str] = ()) -> GraphSession:
    """The model in onnxruntime, unoptimised where values within it are asked for."""
    content = _with_outputs(model, within).SerializeToString()
    # All that there are would round what products with integers behind scales read, to 8 bits.
    return GraphSession(content, level="ORT_DISABLE_ALL" if within else "ORT_ENABLE_BASIC")


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
