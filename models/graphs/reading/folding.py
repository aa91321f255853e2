"""A network's constants computed once, by the runtime's own optimization."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto

from models.errors import GraphRefused
from models.graphs.documents import DEFAULT_LIMITS, GraphLimits
from models.graphs.reading.constants import (
    opened,
    remove_inserted_casts,
    share_equal_weights,
    share_turned_weights,
)
from models.graphs.reading.facts import weight_share
from models.graphs.reading.naming import refuse_unordered, tell_nodes_apart
from models.graphs.reading.nodes import refuse_unknown_operators
from models.graphs.reading.random_feeds import random_feeds
from models.graphs.reading.runtime import plain_session
from models.graphs.reading.tensors import refuse_not_finite, refuse_unsound
from models.graphs.reading.walking import all_graphs, own_tensors
from models.graphs.sessions import GraphSession

TOLERANCE = 1e-4
"""Largest difference of answers as a share of the largest: what merged batch norms round otherwise
stays below."""
_SMALLEST_DIFFERENCE = 1e-6
"""What is let pass beside it: runtimes' sigmoid differs by roundings of 1 also near 0."""
_MOST_DECIDED_OTHERWISE = 0.01
"""Of whole numbers in answers, the share that may differ: random inputs bring near ties."""
_MOST_BURIED = 0.05
"""By how much the share of weights outside of bodies may fall."""
_COMPARED = 2
"""On how many random inputs that the network takes both are compared."""


Feeds: TypeAlias = Iterable[Mapping[str, NDArray[Any]]]
"""Inputs of a network by name, one mapping for each time it is run."""


@dataclass(frozen=True)
class Folded:
    """A network as it is to be compressed."""

    model: ModelProto
    kept_because: str | None = None
    """Why the runtime's constants are not in it; None: they are."""


@dataclass(frozen=True)
class _Answered:
    """One set of inputs, and what the model as it was answered."""

    inputs: Mapping[str, NDArray[Any]]
    answers: Sequence[NDArray[Any]]


def folded(
    model: ModelProto,
    scratch: Path,
    limits: GraphLimits = DEFAULT_LIMITS,
    *,
    feeds: Feeds | None = None,
) -> Folded:
    """The model with constants computed and batch norms merged (`ORT_ENABLE_BASIC`).

    It opens `Constant` nodes, and LSTM weights behind slices. All operators stay standard; inputs,
    outputs and metadata are the model's own. Both are run; where their answers differ, the model
    runs on none of the random inputs that are tried, or weights would move into bodies, it stays as
    it is but for what `opened` computes without a runtime. Equal weights are stored once, also
    those that are read as they are and turned.

    Args:
        model: as `read_graph` gives it.
        scratch: a folder in which a file is written and removed again.
        limits: `folded_bytes` is of that file.
        feeds: inputs by name, on which the model has to run; None: random ones. A file may ask for
            sizes that chance does not find.

    Raises:
        GraphRefused: onnxruntime does not load the model, or does not run it on `feeds`.
        MemoryError: it needs more memory than there is.
    """
    content = model.SerializeToString()
    original = plain_session(content)
    answered = (
        _answered(original, random_feeds(model.graph), may_fail=True)
        if feeds is None
        else _answered(original, feeds, may_fail=False)
    )
    try:
        if not answered:
            raise GraphRefused("the model runs on none of the random inputs that were tried")
        made = _optimized(content, scratch / "folded.onnx", limits)
        _restore(made, model)
        remove_inserted_casts(made, model)
        share_turned_weights(made, model)
        share_equal_weights(made)
        _refuse_worse(made, model)
        _refuse_other_answers(plain_session(made.SerializeToString()), answered)
    except GraphRefused as error:
        kept = opened(model)
        share_equal_weights(kept)
        return Folded(kept, str(error))
    return Folded(made)


def _optimized(content: bytes, target: Path, limits: GraphLimits) -> ModelProto:
    try:
        GraphSession(content, level="ORT_ENABLE_BASIC", optimized_path=target, arena=False)
        size = target.stat().st_size
        if size > limits.folded_bytes:
            raise GraphRefused(
                f"with its constants computed the file has {size} bytes; allowed are "
                f"{limits.folded_bytes}"
            )
        return ModelProto.FromString(target.read_bytes())
    finally:
        target.unlink(missing_ok=True)


def _restore(made: ModelProto, model: ModelProto) -> None:
    """Bring back what users know the model by."""
    for field in ("input", "output"):
        made.graph.ClearField(field)
        getattr(made.graph, field).extend(getattr(model.graph, field))
    made.ClearField("metadata_props")
    made.metadata_props.extend(model.metadata_props)
    made.ClearField("opset_import")
    made.opset_import.extend(model.opset_import)
    made.graph.name, made.graph.doc_string = model.graph.name, model.graph.doc_string
    for field in ("producer_name", "producer_version", "doc_string", "domain", "model_version"):
        made.ClearField(field)
        if model.HasField(field):
            setattr(made, field, getattr(model, field))
    for graph in all_graphs(made.graph):
        graph.ClearField("value_info")
    tell_nodes_apart(made)


def _refuse_worse(made: ModelProto, model: ModelProto) -> None:
    """What holds of every model that was read has to hold of this one.

    Where both branches of an `If` make something of a weight, each gets a copy, which is larger
    and can no longer be compressed.
    """
    before, after = weight_share(model.graph)[1], weight_share(made.graph)[1]
    if after < before - _MOST_BURIED:
        raise GraphRefused(
            f"with its constants computed {100 * after:.0f} % of the weights' bytes are outside of "
            f"bodies, in place of {100 * before:.0f} %"
        )
    refuse_unknown_operators(made.graph)
    refuse_unordered(made.graph)
    for graph in all_graphs(made.graph):
        for name, tensor in own_tensors(graph):
            refuse_unsound(name, tensor)
            refuse_not_finite(name, tensor)


def _answered(session: GraphSession, feeds: Feeds, *, may_fail: bool) -> list[_Answered]:
    """The first inputs that the network takes, with its answers."""
    found: list[_Answered] = []
    for inputs in feeds:
        try:
            found.append(_Answered(inputs, [*session.run(inputs).values()]))
        except GraphRefused:
            if not may_fail:
                raise
        if len(found) == _COMPARED:
            break
    return found


def _refuse_other_answers(session: GraphSession, answered: Sequence[_Answered]) -> None:
    for one in answered:
        found = session.run(one.inputs).values()
        if not all(_same(*pair) for pair in zip(one.answers, found, strict=True)):
            raise GraphRefused("with its constants computed the model gives other answers")


def _same(expected: NDArray[Any], found: NDArray[Any]) -> bool:
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if expected.dtype.kind in "biu":
        return int(np.count_nonzero(expected != found)) <= _MOST_DECIDED_OTHERWISE * found.size
    one, other = expected.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
        return False
    largest = float(np.abs(one[finite]).max(initial=0.0))
    differences = np.abs(one[finite] - other[finite])
    return bool((differences <= TOLERANCE * largest + _SMALLEST_DIFFERENCE).all())
