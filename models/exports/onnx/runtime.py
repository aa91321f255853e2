"""ONNX files in onnxruntime, on one thread of the CPU."""

from collections.abc import Mapping
from typing import Any

import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
import torch
from torch import Tensor

from models.errors import ExportError
from models.exports.onnx.export import INPUT, LENGTHS


class Session:
    """A file that was loaded: what can be computed without an input is computed."""

    def __init__(self, content: bytes, *, threads: int = 1) -> None:
        """Load a file.

        Raises:
            ExportError: onnxruntime does not.
        """
        # The library has no types.
        runtime: Any = onnxruntime
        options = runtime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            self._session: Any = runtime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        # Its errors have no common root but this one.
        except Exception as error:
            raise ExportError(f"onnxruntime does not load the ONNX file: {error}") from error
        self._outputs: list[str] = [output.name for output in self._session.get_outputs()]

    def run(
        self, x: Tensor, lengths: Tensor | None = None, states: Mapping[str, Tensor] | None = None
    ) -> dict[str, Tensor]:
        """All outputs by name.

        Raises:
            ExportError: onnxruntime does not run the file on them.
        """
        feeds = {INPUT: x.numpy()}
        if lengths is not None:
            feeds[LENGTHS] = lengths.numpy()
        for name, state in (states or {}).items():
            feeds[name] = state.numpy()
        try:
            found = self._session.run(None, feeds)
        except Exception as error:
            raise ExportError(
                f"onnxruntime does not run the ONNX file on {list(x.shape)}: {error}"
            ) from error
        return {
            name: torch.as_tensor(value) for name, value in zip(self._outputs, found, strict=True)
        }
