"""The C files."""

import io
import zipfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final, Literal

from models.checkpoint import LoadedModel
from search.exports.export import ExportContext, Made, MadeExport
from search.exports.verification import deciding, on_random_inputs, verified

if TYPE_CHECKING:
    from models.exports.c.export import CFile

_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
"""No time but this one, so that the same files give the same bytes."""

C_NAME: Final = "model"
"""What the functions of a trial's own files begin with."""


class CExport(MadeExport):
    """A header and a source of C99, without any library, compiled and run before it is given."""

    words: ClassVar[str] = "C file"
    file_name: ClassVar[str] = "model.zip"
    parts: ClassVar[tuple[str, ...] | None] = ("model.h", "model.c")

    kind: Literal["c"] = "c"

    @classmethod
    def unpacked(cls, content: bytes) -> Mapping[str, bytes]:
        """Header and source."""
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    @classmethod
    def make(cls, context: ExportContext) -> Made:
        """Both files in a ZIP file, after what they answer to raw samples was compared."""
        from models.exports.c.export import export
        from models.exports.c.toolchain import described, flash_bytes
        from models.exports.c.verify import compiled

        model, interface, samples = context.model, context.interface, context.samples
        file = export(model.module, model.spec, name=C_NAME, interface=interface)
        runtime = {"runtime": "c", "runtime_version": described(())}
        with compiled(file, model.spec, interface) as program:
            program.share(model.module)
            checked = on_random_inputs(**runtime)
            if interface is not None and samples is not None:
                run = deciding(program.answers, interface)
                checked = verified(run, model, context.task, samples, **runtime)
                length = None if samples.lengths is None else int(samples.lengths[0])
                chunks = program.check_parts(samples.x, length)
                checked = checked.model_copy(update={"chunks": chunks})
        on_device = {"c_flash": flash_bytes(file), "c_state": file.state_bytes}
        return Made(_packed(file), checked, on_device)


def c_files(model: LoadedModel, name: str) -> bytes:
    """The files of a model whose own were verified, with another name: all else is the same.

    Raises:
        ExportError: it is no name in C.
    """
    from models.exports.c.export import export

    return _packed(export(model.module, model.spec, name=name, interface=model.interface))


def _packed(file: "CFile") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, text in ((f"{file.name}.h", file.header), (f"{file.name}.c", file.source)):
            entry = zipfile.ZipInfo(name, _EARLIEST)
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return packed.getvalue()
