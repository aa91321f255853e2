"""Tensors in a stranger's file: their element types, sizes and values."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from models.errors import GraphRefused
from models.graphs.reading.sentences import quoted

NAMES: dict[int, str] = {
    TensorProto.FLOAT: "float32",
    TensorProto.DOUBLE: "float64",
    TensorProto.FLOAT16: "float16",
    TensorProto.BFLOAT16: "bfloat16",
    TensorProto.INT8: "int8",
    TensorProto.INT16: "int16",
    TensorProto.INT32: "int32",
    TensorProto.INT64: "int64",
    TensorProto.UINT8: "uint8",
    TensorProto.UINT16: "uint16",
    TensorProto.UINT32: "uint32",
    TensorProto.UINT64: "uint64",
    TensorProto.BOOL: "bool",
    TensorProto.INT4: "int4",
    TensorProto.UINT4: "uint4",
}
"""Element types that are read, by ONNX's numbers."""

FLOATING = frozenset(
    {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
)

_HALVES = frozenset({TensorProto.INT4, TensorProto.UINT4})
_BITS: dict[int, int] = {
    TensorProto.DOUBLE: 64,
    TensorProto.INT64: 64,
    TensorProto.UINT64: 64,
    TensorProto.FLOAT: 32,
    TensorProto.INT32: 32,
    TensorProto.UINT32: 32,
    TensorProto.FLOAT16: 16,
    TensorProto.BFLOAT16: 16,
    TensorProto.INT16: 16,
    TensorProto.UINT16: 16,
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
}
_FIELDS = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data")
_FIELD_OF: dict[int, str] = {
    TensorProto.FLOAT: "float_data",
    TensorProto.DOUBLE: "double_data",
    TensorProto.INT64: "int64_data",
    TensorProto.UINT32: "uint64_data",
    TensorProto.UINT64: "uint64_data",
}
"""Of all others it is `int32_data`."""
_BLOCK = 2**22
"""Elements that are looked at together."""


def tensor_bytes(tensor: TensorProto) -> int:
    """The bytes that its elements take, packed as they are in `raw_data`."""
    return -(-math.prod(tensor.dims) * _BITS.get(tensor.data_type, 8) // 8)


def element_name(data_type: int) -> str:
    """ONNX's own word for an element type that is not read."""
    known = {number: name for name, number in TensorProto.DataType.items()}
    return known.get(data_type, str(data_type)).lower()


def refuse_unsound(name: str, tensor: TensorProto) -> None:
    """Hold a tensor's type, dimensions and bytes against each other; no element is looked at.

    Raises:
        GraphRefused: they disagree, or the elements are elsewhere or of a type that is not read.
    """
    what = f"the weight {quoted(name)}"
    if tensor.data_location == TensorProto.EXTERNAL or tensor.external_data:
        raise GraphRefused(
            f"{what} is in another file; save the model as one file, without external data"
        )
    if tensor.data_type not in NAMES or tensor.string_data:
        raise GraphRefused(
            f"{what} has elements of type {element_name(tensor.data_type)}; allowed are "
            f"{', '.join(NAMES.values())}"
        )
    if tensor.HasField("segment"):
        raise GraphRefused(f"{what} is a segment of a larger one, which is not read")
    if any(size < 0 for size in tensor.dims):
        raise GraphRefused(f"{what} has the shape {list(tensor.dims)[:8]}; no size may be negative")
    _refuse_wrong_size(what, tensor)


def _refuse_wrong_size(what: str, tensor: TensorProto) -> None:
    field = _FIELD_OF.get(tensor.data_type, "int32_data")
    counts = {name: len(getattr(tensor, name)) for name in _FIELDS}
    others = [name for name, count in counts.items() if count and name != field]
    if others or (tensor.raw_data and counts[field]):
        raise GraphRefused(f"{what} has its elements in {(others or [field])[0]} by mistake")
    shape = f"{what} has the shape {list(tensor.dims)[:8]} of {NAMES[tensor.data_type]}"
    needed = tensor_bytes(tensor)
    if counts[field]:
        elements = math.prod(tensor.dims)
        # Integers of 4 bits stand in pairs.
        expected = needed if tensor.data_type in _HALVES else elements
        if counts[field] != expected:
            raise GraphRefused(f"{shape}, which are {expected} numbers; {counts[field]} are there")
    elif len(tensor.raw_data) != needed:
        raise GraphRefused(f"{shape}, which takes {needed} bytes; {len(tensor.raw_data)} are there")


def refuse_not_finite(name: str, tensor: TensorProto) -> None:
    """Look for NaN and Inf in a tensor that `refuse_unsound` has let pass.

    A single Inf, and Inf among zeros, are let pass: attention masks hold them.

    Raises:
        GraphRefused: there is one; the message names the first.
    """
    if tensor.data_type not in FLOATING:
        return
    flat = _floating(tensor)
    wrong: int | None = None
    is_mask = True
    for begin in range(0, len(flat), _BLOCK):
        block = flat[begin : begin + _BLOCK]
        # Cast by blocks: what is compared is not held twice.
        numbers = block.astype(np.float64 if block.itemsize == 8 else np.float32)
        finite = np.isfinite(numbers)
        is_mask &= not numbers[finite].any() and not np.isnan(numbers).any()
        if wrong is None and not finite.all():
            wrong = begin + int(finite.argmin())
        if wrong is not None and not is_mask:
            raise GraphRefused(
                f"the weight {quoted(name)} holds {float(flat[wrong])} at place {wrong} (from 0); "
                "all weights must be finite"
            )


def _floating(tensor: TensorProto) -> NDArray[Any]:
    if tensor.data_type == TensorProto.FLOAT and tensor.float_data:
        count = len(tensor.float_data)
        # One by one: a list of Python's numbers would take six times the memory.
        return np.fromiter(tensor.float_data, dtype=np.float32, count=count)
    if tensor.data_type == TensorProto.FLOAT:
        return np.frombuffer(tensor.raw_data, dtype="<f4")
    return numpy_helper.to_array(tensor).reshape(-1)
