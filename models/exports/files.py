"""The file that a model is exported to, and how large it is.

Sizes follow from shapes, so that they are known before anything is trained. What stands in a file's
metadata has to have a width of its own: a number that training finds is written with leading zeros.
"""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, final

from pydantic import Field, ValidationInfo, field_validator

from models.interface import Interface
from models.model import ModelSpec, shape_words
from models.network import Network
from models.spec import Spec

FileName: TypeAlias = Literal["onnx", "checkpoint", "c"]
FileForm: TypeAlias = Literal["auto", "node", "loop"]
ChosenForm: TypeAlias = Literal["node", "loop"]
Quantization: TypeAlias = Literal["none", "qdq"]
"""How an ONNX file makes numbers of integers: none, by casts and products, which are computed when
the file is loaded; qdq, by `DequantizeLinear`, as runtimes for quantized models look for."""

_REMEMBERED = 4096


class ExportedFile(Spec):
    """The file of a trial that its size in bytes is about."""

    file: FileName = Field(
        default="onnx",
        description="onnx: the ONNX file; checkpoint: the safetensors file of this project's own; "
        "c: the C file, whose bytes are those of its constant tables, with which its header "
        "begins. On a device its code adds a few thousand, as many for one size as for another",
    )
    form: FileForm = Field(
        default="auto",
        description="of an ONNX file: node, matrices are made whole when it is loaded, for the "
        "runtime's own operators; loop, products go through their factors step by step; auto, "
        "whichever is faster at `throughput.batch_size`, in a file of the same size for both. C "
        "files have none but auto",
    )

    @property
    def has_state(self) -> bool:
        """Whether the file itself says what is kept of a sample from a step to the next."""
        return self.file == "c"

    @field_validator("form")
    @classmethod
    def _is_one_of_the_file(cls, form: FileForm, info: ValidationInfo) -> FileForm:
        if info.data.get("file") == "c" and form != "auto":
            raise ValueError(f"{form!r} is of ONNX files, and file is 'c'; allowed is 'auto'")
        return form


def quantization_fault(model: ModelSpec, quantization: Quantization) -> str | None:
    """Why integers of a model's ONNX file cannot be written so; None where they can."""
    if quantization == "none" or model.rounded_to is not None:
        return None
    return (
        f"{quantization!r} is for models of 8 or 4 bits; this one has {model.bits}, and no "
        "integers: allowed is 'none'"
    )


@dataclass(frozen=True, kw_only=True)
class FileParts:
    """What a file is made of beside the model."""

    form: FileForm = "auto"
    interface: Interface | None = None
    guard: bool = False
    """Of an ONNX file: whether a batch may be empty."""
    quantization: Quantization = "none"
    extra: Mapping[str, str] = field(default_factory=dict[str, str])
    """Further metadata."""


def onnx_file(
    network: Network, model: ModelSpec, parts: FileParts, *, faster: Callable[[], ChosenForm]
) -> bytes:
    """A model's ONNX file; `faster` says, where that is asked, in which form it is faster.

    Raises:
        ExportError: there is no such file of such a model.
    """
    # A process that never exports, as workers do not, never waits for these libraries.
    from models.exports.onnx.choice import export_filled
    from models.exports.onnx.export import FileOptions, export

    options = FileOptions(
        form=faster() if parts.form == "auto" else parts.form,
        interface=parts.interface,
        guard=parts.guard,
        quantization=parts.quantization,
    )
    write = export_filled if parts.form == "auto" else export
    return write(network, model, options, extra=parts.extra)


@dataclass(frozen=True)
class FileSize:
    """What a file takes."""

    bytes: int
    state_bytes: int | None = None
    """What its caller keeps of one sample; None where that is what the model keeps."""


def _onnx_size(network: Network, model: ModelSpec, parts: FileParts) -> FileSize:
    from models.exports.onnx.choice import filled_bytes
    from models.exports.onnx.export import FileOptions

    if parts.form == "auto":
        options = FileOptions(interface=parts.interface)
        return FileSize(filled_bytes(network, model, options, extra=parts.extra))
    return FileSize(len(onnx_file(network, model, parts, faster=lambda: "node")))


def _checkpoint_size(network: Network, model: ModelSpec, parts: FileParts) -> FileSize:
    from models.checkpoint import save_bytes

    return FileSize(len(save_bytes(network, model, extra=parts.extra)))


def _c_size(_network: Network, model: ModelSpec, parts: FileParts) -> FileSize:
    from models.exports.c.export import sizes

    found = sizes(model, interface=parts.interface)
    return FileSize(found.tables_bytes, found.state_bytes)


FILES: Mapping[FileName, Callable[[Network, ModelSpec, FileParts], FileSize]] = {
    "onnx": _onnx_size,
    "checkpoint": _checkpoint_size,
    "c": _c_size,
}
"""The registry: how large each file of a network is."""


def exported_size(
    model: ModelSpec,
    exported: ExportedFile,
    interface: Interface | None = None,
    *,
    extra: Mapping[str, str],
) -> FileSize:
    """The size of the file that a trained model will have; nothing is trained for it.

    The file is made of freshly initialised numbers and measured. It is made once for all models of
    the same shapes whose documents are as long.

    Args:
        model: the model.
        exported: which file.
        interface: what stands around the network in the file, if it has it.
        extra: metadata as wide as those that the file will have.

    Raises:
        SpecError: the model cannot be built.
        ExportError: there is no such file of such a model.
    """
    parts = FileParts(form=exported.form, interface=interface, extra=extra)
    words = [
        exported.model_dump_json(),
        shape_words(model.model_dump(mode="json")),
        model.signature.model_dump_json(),
        len(model.model_dump_json()),
        None if interface is None else interface.model_dump_json(),
        *sorted((name, len(value.encode())) for name, value in extra.items()),
    ]
    key = hashlib.sha256(repr(words).encode()).hexdigest()
    return _SIZES.of(key, lambda: FILES[exported.file](model.build(seed=0).eval(), model, parts))


@final
class _Sizes:
    """Sizes by key, those that were asked for last. Threads may share this."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._known: OrderedDict[str, FileSize] = OrderedDict()

    def of(self, key: str, measure: Callable[[], FileSize]) -> FileSize:
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
