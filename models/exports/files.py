"""The files that a model can be taken away as, and how large each of them is.

Sizes follow from shapes, so that they are known before anything is trained. What stands in a file's
metadata has to have a width of its own: a number that training finds is written with leading zeros.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Literal, TypeAlias, final

import torch
from pydantic import Field
from torch import nn

from models.math.initialisation import generator_of
from models.model import ModelSpec, shape_words
from models.spec import Spec

FileName: TypeAlias = Literal["onnx", "checkpoint"]
Form: TypeAlias = Literal["auto"]

_REMEMBERED = 4096
_NOISE = 1e-3


class Export(Spec):
    """What a user takes away of a trial."""

    file: FileName = Field(
        default="onnx",
        description="onnx: the ONNX file; checkpoint: the safetensors file that is trained on from",
    )
    form: Form = Field(
        default="auto", description="how structured weights stand in it: auto, as the file has them"
    )


Write: TypeAlias = Callable[[nn.Module, ModelSpec, Mapping[str, str]], bytes]
"""Writes a network of a spec, with further metadata."""


def _onnx(network: nn.Module, model: ModelSpec, extra: Mapping[str, str]) -> bytes:
    # Whoever never exports, as workers do not, never waits for this library.
    from models.exports.onnx.export import export

    return export(network, model, extra=extra)


def _checkpoint(network: nn.Module, model: ModelSpec, extra: Mapping[str, str]) -> bytes:
    from models.checkpoint import save_bytes

    return save_bytes(network, model, extra=extra)


FILES: Mapping[FileName, Write] = {"onnx": _onnx, "checkpoint": _checkpoint}
"""The registry: how each file is written."""


def exported_bytes(model: ModelSpec, export: Export, extra: Mapping[str, str]) -> int:
    """The size of the file that a trained model will have; nothing is trained for it.

    The file is made of freshly initialised numbers and measured. It is made once for all models of
    the same shapes whose documents are as long.

    Args:
        model: the model.
        export: which file.
        extra: metadata as wide as those that the file will have.

    Raises:
        SpecError: the model cannot be built.
        ExportError: there is no such file of such a model.
    """
    words = [
        export.model_dump_json(),
        shape_words(model.model_dump(mode="json")),
        model.signature.model_dump_json(),
        len(model.model_dump_json()),
        *sorted((name, len(value.encode())) for name, value in extra.items()),
    ]
    key = hashlib.sha256(repr(words).encode()).hexdigest()
    return _SIZES.of(key, lambda: _measured(model, export, extra))


def _measured(model: ModelSpec, export: Export, extra: Mapping[str, str]) -> int:
    network = model.build(seed=0)
    generator = generator_of(0)
    with torch.no_grad():
        # A file keeps equal tensors once: zeros that training will move apart are to differ here.
        for parameter in network.parameters():
            parameter.add_(_NOISE * torch.rand(parameter.shape, generator=generator))
    return len(FILES[export.file](network, model, extra))


@final
class _Sizes:
    """Sizes by key, those that were asked for last. Threads may share this."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[str, int] = OrderedDict()

    def of(self, key: str, measure: Callable[[], int]) -> int:
        with self._lock:
            size = self._known.get(key)
        if size is None:
            size = measure()
        with self._lock:
            self._known[key] = size
            self._known.move_to_end(key)
            while len(self._known) > self._most:
                self._known.popitem(last=False)
        return size


_SIZES = _Sizes(_REMEMBERED)
