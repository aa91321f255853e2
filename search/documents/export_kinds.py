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

ON_DEVICE: Final = {
    "c_flash": "code and tables of the C file, compiled with -Os where it was made",
    "c_state": "what the C file's caller keeps of a sequence",
}
"""What sizes beside those of files there may be, in bytes; kept with what came of making a file."""
