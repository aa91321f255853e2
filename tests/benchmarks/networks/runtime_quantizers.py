"""Onnxruntime's own quantizers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from onnx import version_converter
from onnxruntime import quantization
from onnxruntime.quantization import shape_inference

from models.graphs.sessions import Feed

Maker: TypeAlias = Callable[[Path, Path, Sequence[Feed]], None]
"""Writes the second file, of the first one and of samples to calibrate by."""

_FIRST_WITH_AXES = 13
"""The opset from which on scales may be those of rows."""


def raised(source: Path, opset: int) -> Path:
    """The file in this opset at least, beside the other."""
    model = onnx.load(source)
    if all(one.version >= opset for one in model.opset_import if one.domain in ("", "ai.onnx")):
        return source
    made = source.with_name(f"opset-{opset}.onnx")
    onnx.save(version_converter.convert_version(model, opset), made)
    return made


def _dynamic(**given: Any) -> Maker:
    def make(source: Path, target: Path, feeds: Sequence[Feed]) -> None:
        del feeds
        quantization.quantize_dynamic(source, target, **given)

    return make


def _static(*, per_channel: bool) -> Maker:
    def make(source: Path, target: Path, feeds: Sequence[Feed]) -> None:
        prepared = source.with_name("prepared.onnx")
        shape_inference.quant_pre_process(
            str(raised(source, _FIRST_WITH_AXES)), str(prepared), skip_symbolic_shape=True
        )
        quantization.quantize_static(
            str(prepared),
            str(target),
            _Feeds(feeds),
            quant_format=quantization.QuantFormat.QDQ,
            per_channel=per_channel,
        )

    return make


class _Feeds(quantization.CalibrationDataReader):
    def __init__(self, feeds: Sequence[Feed]) -> None:
        self._rows: Iterator[Mapping[str, Any]] = iter(feeds)

    def get_next(self) -> Any:
        # None is the end.
        row = next(self._rows, None)
        return None if row is None else dict(row)


FROM_RUNTIME: Mapping[str, Maker] = {
    "quantize_dynamic": _dynamic(),
    "quantize_dynamic, unsigned": _dynamic(weight_type=quantization.QuantType.QUInt8),
    "quantize_dynamic, reduce_range": _dynamic(reduce_range=True),
    "quantize_static, QDQ": _static(per_channel=True),
    "quantize_static, QDQ, per tensor": _static(per_channel=False),
}
