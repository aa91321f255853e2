"""Second moments of what layers read, by running a graph on calibration data."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from models.graphs.fits.second_moments import DiagonalMoments, FullMoments, SecondMoments
from models.graphs.fits.statistics import Statistics
from models.graphs.layers import AnyArray, Layer, Matrix, Operand, Reading
from models.graphs.sessions import Feed as Feed
from models.graphs.sessions import GraphSession

MOST_COLUMNS = 4096
"""Above, moments are those of channels, or of each number alone."""
MOST_PATCHES = 400
"""Patches of a convolution that are looked at in one run."""

_Watched: TypeAlias = dict[tuple[int, Operand], str]


def statistics_of(
    model: onnx.ModelProto,
    layers: Sequence[Layer],
    feeds: Iterable[Feed],
    *,
    most_patches: int = MOST_PATCHES,
    seed: int = 0,
) -> dict[str, Statistics]:
    """Statistics of each layer by its name, from running the graph on each feed.

    Of convolutions up to `most_patches` patches a run are drawn by `seed`. A matrix of more than
    4,096 columns has the moments of its channels if it is a convolution, else mean squares.

    Raises:
        GraphRefused: onnxruntime does not load the graph, or does not run it on a feed.
    """
    watched, names = _watched_graph(model, layers)
    constants = _constants(model, set(names.values()))
    session = GraphSession(watched.SerializeToString(), level="ORT_ENABLE_BASIC")
    asked = sorted({*names.values()} & {*session.outputs})
    generator = np.random.default_rng(seed)
    sums = {layer.name: _Sums(layer) for layer in layers}
    runs = 0
    for feed in feeds:
        runs += 1
        seen = {**constants, **feed, **session.run(feed, asked)}
        for layer in layers:
            for reader in layer.readers:
                values = [
                    seen.get(names.get((reader.node, operand), ""))
                    for operand in reader.role.operands()
                ]
                sums[layer.name].add(reader.role.read(values, generator, most_patches))
    return {name: found.statistics(max(1, runs)) for name, found in sums.items()}


def _watched_graph(
    model: onnx.ModelProto, layers: Sequence[Layer]
) -> tuple[onnx.ModelProto, _Watched]:
    """The graph with all that is looked at among its outputs, and their names."""
    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    graph = watched.graph
    names: _Watched = {}
    for layer in layers:
        for place, operand in layer.reads:
            name = _value_name(graph.node[place], operand, f"~{place}.{operand.place}")
            if name:
                names[place, operand] = name
    computed = {name for node in graph.node for name in node.output}
    present = {entry.name for entry in graph.output}
    for name in sorted({*names.values()} & computed - present):
        # onnxruntime infers the type.
        graph.output.append(onnx.ValueInfoProto(name=name))
    return watched, names


def _value_name(node: onnx.NodeProto, operand: Operand, fresh: str) -> str:
    """The name of a node's value; an output without one gets it, an input that is left out none."""
    if operand.side == "input":
        return node.input[operand.place] if operand.place < len(node.input) else ""
    if not node.output[operand.place]:
        node.output[operand.place] = fresh
    return node.output[operand.place]


def _constants(model: onnx.ModelProto, names: set[str]) -> dict[str, AnyArray]:
    """Weights that are read as if they were computed, such as first states."""
    return {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in model.graph.initializer
        if tensor.name in names
    }


@dataclass
class _Sums:
    """Sums over all that a layer read."""

    layer: Layer
    positions: int = 0
    seen: list[int] = field(default_factory=list[int])
    squares: list[AnyArray] = field(default_factory=list[AnyArray])
    counts: NDArray[np.int64] | None = None

    def add(self, reading: Reading) -> None:
        """One node's reading in one run."""
        self.positions += reading.positions
        if reading.counts is not None:
            self.counts = reading.counts if self.counts is None else self.counts + reading.counts
        if not self.layer.structured or not reading.vectors:
            return
        # Directions that read the same vectors have one sum.
        distinct = {id(vectors): vectors for vectors in reading.vectors}
        found = {key: self._squares(vectors) for key, vectors in distinct.items()}
        squares = [found[id(vectors)] for vectors in reading.vectors]
        if not self.squares:
            self.squares, self.seen = squares, [len(one) for one in reading.vectors]
            return
        self.squares = [old + new for old, new in zip(self.squares, squares, strict=True)]
        self.seen = [old + len(new) for old, new in zip(self.seen, reading.vectors, strict=True)]

    def statistics(self, runs: int) -> Statistics:
        """Their means."""
        moments = None
        if self.squares:
            moments = tuple(
                self._moments(squares / max(1, seen))
                for squares, seen in zip(self.squares, self.seen, strict=True)
            )
        frequencies = None
        if self.counts is not None:
            # Each row counts as looked up once more than it was.
            frequencies = (self.counts + 1) / float((self.counts + 1).sum())
        return Statistics(moments, frequencies, self.positions / runs)

    @property
    def _repeat(self) -> int:
        """Columns of a channel whose moments are kept; 0 for mean squares alone."""
        if self.layer.columns <= MOST_COLUMNS:
            return 1
        repeat = self.layer.role.numbers_per_channel
        return repeat if repeat > 1 and self.layer.columns // repeat <= MOST_COLUMNS else 0

    def _squares(self, vectors: Matrix) -> AnyArray:
        if not self._repeat:
            return np.square(vectors).sum(0, dtype=np.float64)
        repeat = self._repeat
        if repeat > 1:
            by_place = vectors.reshape(len(vectors), -1, repeat).transpose(0, 2, 1)
            vectors = by_place.reshape(len(vectors) * repeat, -1) / np.float32(np.sqrt(repeat))
        return (vectors.T @ vectors).astype(np.float64)

    def _moments(self, mean: AnyArray) -> SecondMoments:
        if not self._repeat:
            return DiagonalMoments(mean)
        return FullMoments(mean, self._repeat)
