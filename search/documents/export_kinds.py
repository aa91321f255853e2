"""Roles of a trial's artifacts that are named all over: what it is had as, and made of."""

from typing import Final

CHECKPOINT: Final = "checkpoint"
"""The trained model as this project stores it."""

ONNX: Final = "onnx"
ONNX_STREAM: Final = "onnx_stream"
DENSE: Final = "dense"
C: Final = "c"

SAMPLES: Final = "samples"
"""Raw validation samples of the trial's task, by which files made of the checkpoint are judged."""
