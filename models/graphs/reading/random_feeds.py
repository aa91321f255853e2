"""Random inputs on which two files of one network are compared."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, TensorShapeProto, ValueInfoProto, helper

from models.graphs.reading.tensors import FLOATING

_SIZES = ((1, 16), (2, 64), (1, 1), (1, 224), (1, 512), (1, 576), (1, 288))
"""Tried for sizes that a file leaves open: of the batch, and of others. Pictures often have 224 a
side, and pieces of sound 512 numbers, or 64 more than 512 and 32 more than 256."""
_MOST_ELEMENTS = 2**24
"""Of one input."""


def random_feeds(graph: GraphProto) -> Iterator[Mapping[str, NDArray[Any]]]:
    """Inputs that a network may take, or not: it has to be tried.

    Floating numbers are normal, of deviation 1. Whole numbers are 0 or 1, which any vocabulary and
    any mask has; then all are 1, which lengths can be. The seed is fixed.
    """
    generator = np.random.default_rng(0)
    has_integers = any(port.type.tensor_type.elem_type not in FLOATING for port in graph.input)
    seen: set[tuple[tuple[int, ...], ...]] = set()
    for (batch, other), ones in itertools.product(_SIZES, (False, True)):
        shapes = _shapes(graph, batch, other)
        if max((math.prod(shape) for shape in shapes), default=0) > _MOST_ELEMENTS:
            continue
        if (ones and not has_integers) or (not ones and shapes in seen):
            continue
        seen.add(shapes)
        yield {
            port.name: _values(port, shape, generator, ones=ones)
            for port, shape in zip(graph.input, shapes, strict=True)
        }


def _values(
    port: ValueInfoProto, shape: tuple[int, ...], generator: np.random.Generator, *, ones: bool
) -> NDArray[Any]:
    element = port.type.tensor_type.elem_type
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    if element in FLOATING:
        return np.asarray(generator.standard_normal(shape)).astype(dtype)
    drawn = np.ones(shape) if ones else generator.integers(0, 2, shape)
    return np.asarray(drawn).astype(dtype)


def _shapes(graph: GraphProto, batch: int, other: int) -> tuple[tuple[int, ...], ...]:
    """Shapes of all inputs; the batch is the first size that an input leaves open."""
    # States of a recurrence have it behind their layers, by the name that it has elsewhere.
    names = {size.dim_param for port in graph.input for size in _dimensions(port)[:1]} - {""}
    return tuple(_shape(port, names, batch, other) for port in graph.input)


def _shape(port: ValueInfoProto, names: set[str], batch: int, other: int) -> tuple[int, ...]:
    sizes: list[int] = []
    is_first = True
    for size in _dimensions(port):
        if size.dim_value > 0:
            sizes.append(size.dim_value)
            continue
        is_batch = size.dim_param in names if size.dim_param else is_first
        sizes.append(batch if is_batch else other)
        is_first = False
    return tuple(sizes)


def _dimensions(port: ValueInfoProto) -> Sequence[TensorShapeProto.Dimension]:
    return list(port.type.tensor_type.shape.dim)
