"""Folders of trials as they are sent: gathered, and written into a ZIP file."""

import logging
import zipfile
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from models.report import ParameterReport
from search.exports import EXPORTS
from search.exports.folder import Folder, FolderFile, Lost, folder_of
from search.exports.folder.rows import folder_facts
from search.exports.network_folder import (
    REPORT_HTML,
    REPORT_JSON,
    compressed_facts,
    network_folder,
)
from search.graphs.network_report import NetworkReport
from search.graphs.network_trial import NetworkTrial
from search.training.trial_spec import trial_spec_of
from service.api.fronts.schemas import MISSING, MissingFile, MissingFiles
from service.api.trials.reports import conversion_of, trial_report
from service.rendering.compressed_page import CompressedPage
from service.rendering.pages import Pages
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import ArtifactNotFound, StoredBytesDamaged
from storage.records import TrialOrigin
from storage.repositories.trials import Trials

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 1 << 20

_EARLIEST = (1980, 1, 1, 0, 0, 0)
"""No time but this one, so that the same files give the same bytes."""


@dataclass(frozen=True)
class FolderMaker:
    """Gathers the folders of trials."""

    database: Database
    store: ArtifactStore
    pages: Pages

    def folder(self, study_id: str, number: int) -> Folder:
        """The files of a trial that are there, and why others are not.

        Raises:
            NotFound: there is no such trial.
        """
        with self.database.read() as session:
            spec = trial_spec_of(Trials(session).get(study_id, number).spec)
        gathered = self._of_a_network if isinstance(spec, NetworkTrial) else self._of_a_model
        return gathered(study_id, number)

    def compressed_page(self, study_id: str, number: int) -> CompressedPage | None:
        """What is said of a network's file; None where there is no report of it.

        Raises:
            NotFound: there is no such trial.
            ArtifactNotFound, StoredBytesDamaged: the report's bytes are gone or damaged.
        """
        with self.database.read() as session:
            facts = compressed_facts(session, study_id, number)
        if "report" not in facts.artifacts:
            return None
        content = self._read(facts.artifacts["report"].sha256)
        return CompressedPage(facts=facts, report=NetworkReport.model_validate_json(content))

    def _of_a_network(self, study_id: str, number: int) -> Folder:
        page: CompressedPage | None = None
        reports: Mapping[str, bytes | Lost] = {}
        try:
            page = self.compressed_page(study_id, number)
        except (ArtifactNotFound, StoredBytesDamaged) as error:
            reports = dict.fromkeys((REPORT_JSON, REPORT_HTML), Lost(str(error)))
        if page is not None:
            reports = {
                REPORT_JSON: page.report.model_dump_json(indent=1).encode(),
                REPORT_HTML: self.pages.compressed_report(study_id, page).encode(),
            }
        with self.database.read() as session:
            facts = compressed_facts(session, study_id, number) if page is None else page.facts
        return network_folder(facts, None if page is None else page.report, reports=reports)

    def _of_a_model(self, study_id: str, number: int) -> Folder:
        with self.database.read() as session:
            facts = folder_facts(session, study_id, number)
        reports: Mapping[str, bytes | Lost] = {}
        if "report" in facts.artifacts:
            try:
                reports = self._reports(study_id, number, facts.artifacts["report"].sha256)
            except (ArtifactNotFound, StoredBytesDamaged) as error:
                reports = dict.fromkeys(_REPORTS, Lost(str(error)))
        return folder_of(facts, EXPORTS, self._read, reports=reports)

    def _read(self, digest: str) -> bytes:
        with self.store.open_reader(digest) as reader:
            return reader.read()

    def _reports(self, study_id: str, number: int, digest: str) -> dict[str, bytes]:
        counted = ParameterReport.model_validate_json(self._read(digest))
        with self.database.read() as session:
            origin = Trials(session).get(study_id, number).origin
        conversion = conversion_of(self.database, self.store, study_id, number)
        report = trial_report(counted, conversion, original=origin == TrialOrigin.ORIGINAL)
        page = self.pages.report(study_id, number, report)
        contents = (report.model_dump_json(indent=1), report.as_csv(), page)
        return {name: text.encode() for name, text in zip(_REPORTS, contents, strict=True)}


_REPORTS = ("report.json", "report.csv", "report.html")


def missing_files(number: int, folder: Folder) -> list[MissingFile]:
    """What a folder lacks, by the places that it would have in a ZIP file."""
    return [
        MissingFile(file=f"trial-{number}/{name}", reason=reason, lost=name in folder.lost)
        for name, reason in folder.missing.items()
    ]


def folder_zip(store: ArtifactStore, number: int, folder: Folder) -> Generator[bytes]:
    """`trial-N/` with all files, and `missing.json` beside it, which names what is not there."""
    writer, missing = ZipWriter(store), missing_files(number, folder)
    yield from writer.add_folder(f"trial-{number}", list(folder.files.values()), missing)
    if missing:
        yield writer.add(MISSING, MissingFiles(missing=tuple(missing)).model_dump_json(indent=2))
    yield writer.close()


class ZipWriter:
    """A ZIP file that is written while it is sent: nothing is gathered first."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._sink = _Sink()
        self._archive = zipfile.ZipFile(self._sink, "w")

    def add(self, name: str, content: str | bytes) -> bytes:
        """A file of these bytes; gives what there is to send."""
        # Not by name: that would stamp it with the time.
        self._archive.writestr(zipfile.ZipInfo(name, _EARLIEST), content, zipfile.ZIP_DEFLATED)
        return self._sink.take()

    def add_folder(
        self, place: str, files: Sequence[FolderFile], missing: list[MissingFile]
    ) -> Generator[bytes]:
        """All files below a place; those whose bytes turn out to be damaged are noted as missing.

        A store that does not answer breaks the file off before its directory, without which nobody
        takes it for whole.
        """
        for file in files:
            if file.content is not None:
                yield self.add(f"{place}/{file.name}", file.content)
                continue
            # Weights do not compress.
            entry = zipfile.ZipInfo(f"{place}/{file.name}", _EARLIEST)
            try:
                with (
                    self._store.open_reader(file.sha256) as reader,
                    self._archive.open(entry, "w", force_zip64=True) as writer,
                ):
                    while chunk := reader.read(_CHUNK_BYTES):
                        writer.write(chunk)
                        yield self._sink.take()
            except (ArtifactNotFound, StoredBytesDamaged) as error:
                reason = str(error)
                _log.error("a ZIP lacks a file", extra={"file": entry.filename, "reason": reason})
                missing.append(MissingFile(file=entry.filename, reason=reason, lost=True))
                self._forget(entry)

    def close(self) -> bytes:
        """Write the directory; gives what there is to send."""
        self._archive.close()
        return self._sink.take()

    def _forget(self, entry: zipfile.ZipInfo) -> None:
        """Leave a file whose bytes turned out to be damaged out of the directory.

        What was sent of it stays in the ZIP file, where nothing names it.
        """
        if self._archive.NameToInfo.pop(entry.filename, None) is not None:
            self._archive.filelist.remove(entry)


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
