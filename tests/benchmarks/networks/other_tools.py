"""What onnxruntime's own quantizers make of a network."""

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnxruntime import quantization
from onnxruntime.quantization import shape_inference

from models.graphs.sessions import Feed

Maker = Callable[[Path, Path, Sequence[Feed]], None]


def files_of_others(model: onnx.ModelProto, feeds: Sequence[Feed]) -> dict[str, bytes | str]:
    """A file of each tool and setting, or why there is none. The model has its constants folded."""
    # They warn of what they were asked to do.
    logging.getLogger().setLevel(logging.ERROR)
    found: dict[str, bytes | str] = {}
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "model.onnx"
        source.write_bytes(model.SerializeToString())
        for title, make in _MAKERS.items():
            target = Path(name) / "made.onnx"
            target.unlink(missing_ok=True)
            try:
                make(source, target, feeds)
            # What they raise has no common root; that they do is a figure.
            except Exception as error:
                found[title] = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
            else:
                found[title] = target.read_bytes()
    return found


def _dynamic(**given: Any) -> Maker:
    def make(source: Path, target: Path, feeds: Sequence[Feed]) -> None:
        del feeds
        quantization.quantize_dynamic(source, target, **given)

    return make


def _static(source: Path, target: Path, feeds: Sequence[Feed]) -> None:
    prepared = source.with_name("prepared.onnx")
    shape_inference.quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
    quantization.quantize_static(
        str(prepared),
        str(target),
        _Feeds(feeds),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
    )


class _Feeds(quantization.CalibrationDataReader):
    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._rows: Iterator[Mapping[str, np.ndarray]] = iter(feeds)

    def get_next(self) -> Any:
        # None is the end.
        row = next(self._rows, None)
        return None if row is None else dict(row)


_MAKERS: Mapping[str, Maker] = {
    "quantize_dynamic": _dynamic(),
    "quantize_dynamic, unsigned": _dynamic(weight_type=quantization.QuantType.QUInt8),
    "quantize_dynamic, reduce_range": _dynamic(reduce_range=True),
    "quantize_static, QDQ": _static,
}
