"""The points of a front as one ZIP file, written while it is sent: nothing is gathered first."""

import logging
import zipfile
from collections.abc import Generator

from search.documents.export_kinds import DENSE, ONNX
from service.api.fronts.csv_tables import front_csv
from service.api.fronts.schemas import MISSING, FrontDocument, MissingFile, MissingFiles
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import ArtifactNotFound, StoredBytesDamaged
from storage.repositories.artifact_rows import ArtifactRows

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20
_FILES = {
    "checkpoint": "checkpoint.safetensors",
    "report": "report.json",
    "conversion": "conversion.json",
    ONNX: "model.onnx",
    DENSE: "dense.safetensors",
}
"""Role of an artifact -> its name in the folder of its trial."""

_OF_EVERY_POINT = ("checkpoint", "report")
"""Roles that every complete trial has had."""

_NOT_KEPT = "the study's retention did not keep it"

_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""No time but this one, so that the same front gives the same bytes."""


def bundle(
    database: Database, store: ArtifactStore, study_id: str, front: FrontDocument
) -> Generator[bytes]:
    """`front.csv`, `front.json`, and a folder per point with its checkpoint, reports and exports.

    Files that are not in it, though every point once had them, are named in a last file,
    `missing.json`, with the reason: bytes that are damaged or gone, and what retention did not
    keep. A store that does not answer breaks the file off before its directory, without which
    nobody takes it for whole.
    """
    missing: list[MissingFile] = []
    sink = _Sink()
    with zipfile.ZipFile(sink, "w") as archive:
        tables = {"front.csv": front_csv(front), "front.json": front.model_dump_json(indent=2)}
        for name, text in tables.items():
            # Not `writestr` by name: that would stamp it with the time.
            archive.writestr(zipfile.ZipInfo(name, _EARLIEST), text, zipfile.ZIP_DEFLATED)
        yield sink.take()
        for point in front.points:
            with database.read() as session:
                artifacts = ArtifactRows(session).of_trial(study_id, point.trial)
            for role, name in _FILES.items():
                file = f"trial-{point.trial}/{name}"
                if role not in artifacts:
                    if role in _OF_EVERY_POINT:
                        missing.append(MissingFile(file=file, reason=_NOT_KEPT, lost=False))
                    continue
                # Weights do not compress.
                entry = zipfile.ZipInfo(file, _EARLIEST)
                try:
                    with (
                        store.open_reader(artifacts[role].sha256) as reader,
                        archive.open(entry, "w", force_zip64=True) as writer,
                    ):
                        while chunk := reader.read(_CHUNK_BYTES):
                            writer.write(chunk)
                            yield sink.take()
                except (ArtifactNotFound, StoredBytesDamaged) as error:
                    _log.error(
                        "a bundle lacks a file",
                        extra={"study_id": study_id, "file": file, "reason": str(error)},
                    )
                    missing.append(MissingFile(file=file, reason=str(error), lost=True))
                    _forget(archive, entry)
        if missing:
            document = MissingFiles(missing=tuple(missing)).model_dump_json(indent=2)
            entry = zipfile.ZipInfo(MISSING, _EARLIEST)
            archive.writestr(entry, document, zipfile.ZIP_DEFLATED)
    yield sink.take()


def _forget(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Leave a file whose bytes turned out to be damaged out of the directory.

    What was sent of it stays in the ZIP file, where nothing names it.
    """
    if archive.NameToInfo.pop(entry.filename, None) is not None:
        archive.filelist.remove(entry)


class _Sink:
    """Where the archive is written: a pipe that cannot seek, emptied by `take`."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []

    def write(self, chunk: bytes) -> int:
        """Keep the bytes until they are taken."""
        self._chunks.append(bytes(chunk))
        return len(chunk)

    def flush(self) -> None:
        """Nothing waits elsewhere."""

    def close(self) -> None:
        """Nothing to give back."""

    def take(self) -> bytes:
        """What was written since the last time."""
        taken = b"".join(self._chunks)
        self._chunks.clear()
        return taken
