"""Packed rotations: a file holds angles; who turns with whom is computed."""

import torch

from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.arithmetic import (
    INTEGER,
    by_columns,
    cast,
    grid,
    identity,
    product,
    transposed,
)
from models.exports.onnx.matrices.numbers import parameter
from models.exports.onnx.matrices.stored import Stored
from models.parametrizations.packed_rotations import PackedRotationsLinear
from models.parametrizations.parts.packed_angles import PackedAngles
from models.parametrizations.rotation_svd import RotationSvdLinear


def packed_rotations(graph: Graph, linear: PackedRotationsLinear) -> Stored:
    """The product of all stages."""
    size = linear.in_features
    return Stored(
        graph,
        (linear.num_matrices, size, size),
        whole=lambda: _product(graph, linear.rotations),
    )


def rotation_svd(graph: Graph, linear: RotationSvdLinear) -> Stored:
    """`U diag(s) V^T`."""
    size = linear.in_features

    def whole() -> str:
        left = by_columns(graph, _product(graph, linear.u), graph.constant(linear.s))
        return product(graph, left, transposed(graph, _product(graph, linear.v)))

    return Stored(graph, (linear.num_matrices, size, size), whole=whole)


def _product(graph: Graph, angles: PackedAngles) -> str:
    """`P_{K-1} ... P_0` `[G, n, n]`, stage after stage on the rows of the identity."""
    size, count = angles.size, angles.count
    partner, sign, place = _schedule(graph, size, count)
    each = graph.integers(angles.theta.shape[0], -1)
    stored = graph.apply("Reshape", _angles(graph, angles), each)
    theta = graph.apply("Gather", stored, place, axis=1)
    theta = graph.apply("Mul", theta, cast(graph, sign))
    theta = graph.apply("Unsqueeze", theta, graph.integers(3))  # [G, K, n, 1]
    cosines, sines = (
        graph.apply_many("Split", graph.apply(turn, theta), outputs=count, axis=1)
        for turn in ("Cos", "Sin")
    )
    partners = graph.apply_many("Split", partner, outputs=count, axis=0)
    rows = graph.apply("Unsqueeze", identity(graph, size, size), graph.integers(0, 1))
    first = graph.integers(0)
    for cosine, sine, other in zip(cosines, sines, partners, strict=True):
        swapped = graph.apply("Gather", rows, graph.apply("Squeeze", other, first), axis=2)
        kept = graph.apply("Mul", cosine, rows)
        rows = graph.apply("Add", kept, graph.apply("Mul", sine, swapped))
    return graph.apply("Squeeze", rows, graph.integers(1))


def _schedule(graph: Graph, size: int, count: int) -> tuple[str, str, str]:
    """Partners, signs of the angles, and where these stand, `[K, n]` each.

    What `circle_partners` and `pair_places` of models/math/rotations.py give.
    """
    odd, half = size - (size + 1) % 2, size // 2
    stage, coordinate = grid(graph, count, size)
    partner = graph.apply("Sub", stage, coordinate)
    partner = graph.apply("Mod", partner, graph.integer(odd))
    if size % 2 == 0:
        last = graph.integer(size - 1)
        inside = graph.apply("Less", coordinate, last)
        alone = graph.apply("And", graph.apply("Equal", partner, coordinate), inside)
        partner = graph.apply("Where", alone, last, partner)
        others = graph.apply("Mul", stage, graph.integer(half))
        others = graph.apply("Mod", others, graph.integer(odd))
        partner = graph.apply("Where", inside, partner, others)
    sign = graph.apply("Sign", graph.apply("Sub", partner, coordinate))
    larger = cast(graph, graph.apply("Less", sign, graph.integer(0)), INTEGER)
    place = graph.apply("CumSum", larger, graph.integer(1))
    place = graph.apply("Sub", place, graph.integer(1))
    of_pair = graph.apply("Max", partner, graph.apply("Expand", coordinate, _shape(graph, partner)))
    place = graph.apply("GatherElements", place, of_pair, axis=1)
    place = graph.apply("Max", place, graph.integer(0))
    place = graph.apply("Add", place, graph.apply("Mul", stage, graph.integer(half)))
    return partner, sign, place


def _shape(graph: Graph, value: str) -> str:
    return graph.apply("Shape", value)


def _angles(graph: Graph, angles: PackedAngles) -> str:
    """Within ±pi, where rounded ones are: runtimes take cosines of large ones less exactly."""
    if graph.root.bits is not None:
        return parameter(graph, angles, "theta")
    return graph.constant(torch.remainder(angles.theta + torch.pi, 2 * torch.pi) - torch.pi)
