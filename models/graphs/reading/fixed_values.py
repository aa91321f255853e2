"""A user's value as the constant that replaces an input."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, ValueInfoProto, helper, numpy_helper

from models.errors import GraphRefused
from models.graphs.reading.sentences import quoted
from models.graphs.reading.tensors import FLOATING, NAMES

_WHOLE = "biu"


def fixed_tensor(port: ValueInfoProto, value: object, most_bytes: int) -> TensorProto:
    """The value in the input's type and shape; a scalar fills the whole input.

    Raises:
        GraphRefused: it does not fit, is not finite, or is larger than `most_bytes`.
    """
    what = f"the fixed input {quoted(port.name)}"
    element = port.type.tensor_type.elem_type
    if element in (TensorProto.INT4, TensorProto.UINT4):
        raise GraphRefused(f"{what} has elements of type {NAMES[element]}, which cannot be fixed")
    given = _numbers(what, value)
    shape = _shape(what, port, given)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    size = math.prod(shape) * dtype.itemsize
    if size > most_bytes:
        raise GraphRefused(f"{what} takes {size} bytes; allowed are {most_bytes}")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = given.astype(dtype)
    if element in FLOATING:
        if not np.isfinite(converted.astype(np.float64)).all():
            raise GraphRefused(f"{what} holds a number that is not finite as {NAMES[element]}")
    elif not (converted == given).all() or (
        element == TensorProto.BOOL and given.dtype.kind == "f"
    ):
        raise GraphRefused(f"{what} holds a value that is no {NAMES[element]}")
    # A fresh array: what is spread over a shape has no memory of its own.
    return numpy_helper.from_array(np.array(np.broadcast_to(converted, shape)), port.name)


def _numbers(what: str, value: object) -> NDArray[Any]:
    try:
        given = np.asarray(value)
    except ValueError as error:
        raise GraphRefused(f"{what} has rows of unequal lengths") from error
    if given.dtype.kind not in f"{_WHOLE}f":
        raise GraphRefused(f"{what} holds something else than numbers: {given.dtype}")
    return given


def _shape(what: str, port: ValueInfoProto, given: NDArray[Any]) -> tuple[int, ...]:
    """The shape of the constant: the value's own, or the input's for a scalar."""
    if not port.type.tensor_type.HasField("shape"):
        return given.shape
    sizes = port.type.tensor_type.shape.dim
    known = [size.dim_value if size.dim_value > 0 else None for size in sizes]
    shown = [size.dim_param or size.dim_value or "?" for size in sizes]
    if given.ndim == 0 and None not in known:
        return tuple(size for size in known if size is not None)
    fits = given.ndim == len(known) and all(
        size in (None, found) for size, found in zip(known, given.shape, strict=False)
    )
    if not fits:
        raise GraphRefused(f"{what} has the shape {list(given.shape)}; the model asks for {shown}")
    return given.shape
