"""What a trained model can be had as."""

from typing import Literal

from models.spec import Spec, kind_of


class CheckpointExport(Spec):
    """The trained model as this project stores it: parameters and spec in one safetensors file."""

    kind: Literal["checkpoint"] = "checkpoint"


class OnnxExport(Spec):
    """An ONNX file, made when it is wanted and verified to compute what the model computes."""

    kind: Literal["onnx"] = "onnx"


class DenseExport(Spec):
    """The tensors of plain torch.nn layers, structured matrices folded, as a safetensors file."""

    kind: Literal["dense"] = "dense"


EXPORTS = (CheckpointExport, OnnxExport, DenseExport)
"""None of them has settings."""

CHECKPOINT, ONNX, DENSE = map(kind_of, EXPORTS)
"""Roles of a trial's artifacts."""
