"""ONNX tensors and types as those of torch."""

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from models.errors import InterpreterError

TYPES: Mapping[int, torch.dtype] = {
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.DOUBLE: torch.float64,
    onnx.TensorProto.FLOAT16: torch.float32,
    onnx.TensorProto.BFLOAT16: torch.bfloat16,
    onnx.TensorProto.INT8: torch.int8,
    onnx.TensorProto.INT16: torch.int16,
    onnx.TensorProto.INT32: torch.int32,
    onnx.TensorProto.INT64: torch.int64,
    onnx.TensorProto.UINT8: torch.uint8,
    onnx.TensorProto.BOOL: torch.bool,
}
"""What torch computes in, by a file's type; others are refused by name.

Half precision is computed in single, as onnxruntime does on the CPU: an optimizer's steps would be
lost in its roundings.
"""

# Types of a file that are computed in wider ones, and numpy's type on the way there.
_WIDENED: Mapping[int, tuple[Any, torch.dtype]] = {
    onnx.TensorProto.FLOAT16: (np.float32, torch.float32),
    onnx.TensorProto.BFLOAT16: (np.float32, torch.bfloat16),
    onnx.TensorProto.INT4: (np.int8, torch.int8),
    onnx.TensorProto.UINT4: (np.uint8, torch.uint8),
    onnx.TensorProto.UINT16: (np.int64, torch.int64),
    onnx.TensorProto.UINT32: (np.int64, torch.int64),
}


def torch_type(element: int) -> torch.dtype:
    """The type of an ONNX number.

    Raises:
        InterpreterError: torch does not compute with it.
    """
    if element not in TYPES:
        raise InterpreterError(
            f"type {type_name(element)} is not computed; computed are "
            f"{', '.join(sorted(map(type_name, TYPES)))}"
        )
    return TYPES[element]


def tensor_of(proto: onnx.TensorProto) -> Tensor:
    """A tensor's numbers, in memory of their own.

    Half precision comes as single; integers of 4, 16 and 32 bits may come wider, too.

    Raises:
        InterpreterError: torch has no such type.
    """
    if proto.data_type in _WIDENED:
        between, kind = _WIDENED[proto.data_type]
        return torch.as_tensor(numpy_helper.to_array(proto).astype(between)).to(kind)
    torch_type(proto.data_type)
    return torch.as_tensor(np.array(numpy_helper.to_array(proto)))


def whole_numbers(value: Tensor) -> list[int]:
    """The numbers of a shape or of a list of axes; one without a dimension is a list of one."""
    return [int(one) for one in real_numbers(value)]


def real_numbers(value: Tensor) -> list[float]:
    """The numbers of a tensor in their order."""
    # torch does not say what its lists hold.
    return cast(list[float], value.reshape(-1).tolist())  # pyright: ignore[reportUnknownMemberType]


def aligned(*values: Tensor) -> list[Tensor]:
    """Tensors that are computed with one another, on one device.

    Shapes and constants of whole numbers stay on the CPU; only where one meets a tensor that is
    elsewhere it follows there.
    """
    devices = {value.device for value in values if value.device.type != "cpu"}
    if not devices:
        return list(values)
    (device,) = devices
    return [value.to(device) for value in values]


def type_name(element: int) -> str:
    """The standard's name of a type, such as UINT32."""
    return onnx.TensorProto.DataType.Name(element)
