"""The points of a front as one ZIP file, written while it is sent: nothing is gathered first."""

import zipfile
from collections.abc import Generator

from search.exports import DENSE, ONNX
from service.csv_tables import front_csv
from service.documents import FrontDocument
from storage.artifact_rows import ArtifactRows
from storage.artifacts import ArtifactStore
from storage.engine import Database

_CHUNK_BYTES = 1 << 20
_FILES = {
    "checkpoint": "checkpoint.safetensors",
    "report": "report.json",
    "conversion": "conversion.json",
    ONNX: "model.onnx",
    DENSE: "dense.safetensors",
}
"""Role of an artifact -> its name in the folder of its trial."""

_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""No time but this one, so that the same front gives the same bytes."""


def bundle(
    database: Database, store: ArtifactStore, study_id: str, front: FrontDocument
) -> Generator[bytes]:
    """`front.csv`, `front.json`, and a folder per point with its checkpoint, reports and exports.

    What is no longer kept is left out. Bytes that are damaged, or vanish meanwhile, break the file
    off before its directory, without which nobody takes it for whole.
    """
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
                if role not in artifacts:
                    continue
                # Weights do not compress.
                entry = zipfile.ZipInfo(f"trial-{point.trial}/{name}", _EARLIEST)
                with (
                    store.open_reader(artifacts[role].sha256) as reader,
                    archive.open(entry, "w", force_zip64=True) as writer,
                ):
                    while chunk := reader.read(_CHUNK_BYTES):
                        writer.write(chunk)
                        yield sink.take()
    yield sink.take()


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
