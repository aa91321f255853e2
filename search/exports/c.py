"""The C files."""

import io
import zipfile
from collections.abc import Mapping
from typing import ClassVar, Final, Literal

from search.exports.export import ExportContext, Made, MadeExport

_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)
"""No time but this one, so that the same files give the same bytes."""

_NAME: Final = "model"


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
        from models.exports.c.verify import verify

        model = context.model
        file = export(model.module, model.spec, name=_NAME, interface=model.interface)
        samples = None if context.samples is None else context.samples.between(0, _LOOKED_AT).x
        verify(file, model.module, model.spec, interface=model.interface, samples=samples)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            for name, text in ((f"{_NAME}.h", file.header), (f"{_NAME}.c", file.source)):
                entry = zipfile.ZipInfo(name, _EARLIEST)
                archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
        return Made(packed.getvalue())


_LOOKED_AT: Final = 8
