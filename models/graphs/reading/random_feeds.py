"""Random inputs on which two files of one network are compared."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ValueInfoProto, helper

from models.graphs.reading.tensors import FLOATING

_SIZES = ((1, 16), (2, 64), (1, 1), (1, 224), (1, 512))
"""Tried for sizes that a file leaves open: of the first axis, and of others."""
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
    for (first, other), ones in itertools.product(_SIZES, (False, True)):
        shapes = tuple(_shape(port, first, other) for port in graph.input)
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


def _shape(port: ValueInfoProto, first: int, other: int) -> tuple[int, ...]:
    sizes = port.type.tensor_type.shape.dim
    return tuple(
        size.dim_value if size.dim_value > 0 else (other if axis else first)
        for axis, size in enumerate(sizes)
    )
