"""Artifacts as files of a folder."""

import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from storage.blobs.artifacts import DIGEST, FULL, ArtifactStore, full_told, not_found
from storage.errors import (
    ArtifactDamaged,
    ArtifactNotFound,
    StoredBytesDamaged,
    StoreFull,
    StoreUnavailable,
)

_log = logging.getLogger(__name__)
_UNFINISHED = ".unfinished-"
_CHUNK_BYTES = 1 << 18


class LocalArtifactStore:
    """Artifacts as files of a folder, in subfolders named by a digest's first two characters.

    Only a digest ever becomes part of a path. Files appear by a rename within their folder, after
    their bytes have reached the disk: one that is found is whole, also after a power failure.
    """

    def __init__(self, root: Path, *, reserve_bytes: int = 0) -> None:
        """Keep artifacts below `root`, which is made when the first one is written.

        So much of its disk is left free for others, such as a database beside it.
        """
        self._root = root
        self._reserve_bytes = reserve_bytes
        self._was_there = root.exists()
        self._lasting: set[Path] = set()
        """Subfolders whose names have reached the disk."""

    def __str__(self) -> str:
        """The folder."""
        return str(self._root)

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """See `ArtifactStore`; the file is read once to check it before it is handed out."""
        with self._found(artifact_id) as path:
            reader = path.open("rb")
        try:
            with self._answering():
                digest = hashlib.file_digest(reader, "sha256").hexdigest()
            if digest != artifact_id:
                raise StoredBytesDamaged(
                    f"the stored artifact {artifact_id} has the digest {digest}"
                )
            reader.seek(0)
        except BaseException:
            reader.close()
            raise
        return reader

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """See `ArtifactStore`."""
        if not DIGEST.fullmatch(artifact_id):
            raise ArtifactDamaged(f"{artifact_id[:80]!r} is not the SHA-256 of any bytes")
        self.check_room()
        with full_told(self._root), self._answering():
            self._write(artifact_id, content_body)
        self._was_there = True

    def _write(self, artifact_id: str, content_body: BinaryIO) -> None:
        path = self._path(artifact_id)
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=_UNFINISHED, dir=path.parent)
        unfinished = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as writer:
                # Tells a sweep that this writer lives; the kernel lets go of it with the process.
                fcntl.flock(writer, fcntl.LOCK_EX)
                digest = hashlib.sha256()
                while chunk := content_body.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    writer.write(chunk)
                writer.flush()
                os.fsync(writer.fileno())
            if (found := digest.hexdigest()) != artifact_id:
                raise ArtifactDamaged(f"the bytes sent as {artifact_id} have the digest {found}")
            unfinished.replace(path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _sync_folder(path.parent)
        if path.parent not in self._lasting:
            # The subfolder may be new, and then its own name has to reach the disk as well.
            _sync_folder(self._root)
            self._lasting.add(path.parent)

    def remove(self, artifact_id: str) -> None:
        """See `ArtifactStore`."""
        with self._found(artifact_id) as path:
            path.unlink()

    def remove_all(self, artifact_ids: Sequence[str]) -> int:
        """See `ArtifactStore`."""
        removed = 0
        for artifact_id in artifact_ids:
            with suppress(ArtifactNotFound):
                self.remove(artifact_id)
                removed += 1
        return removed

    def size(self, artifact_id: str) -> int:
        """See `ArtifactStore`."""
        with self._found(artifact_id) as path:
            return path.stat().st_size

    def link(self, artifact_id: str, *, filename: str, seconds: int) -> str | None:  # noqa: ARG002
        """None: files have no URL of their own."""
        return None

    def check_access(self) -> None:
        """Nothing: a folder is made when the first file is written."""

    def check_room(self) -> None:
        """See `ArtifactStore`."""
        with self._answering():
            self._check_there()
            there = next(folder for folder in (self._root, *self._root.parents) if folder.exists())
            free = shutil.disk_usage(there).free
        if free < self._reserve_bytes:
            raise StoreFull(
                f"{self._root} has {free} bytes free, and {self._reserve_bytes} are kept free"
            )
        if there == self._root:
            self._check_writing()

    def is_new(self) -> bool:
        """Whether the folder is not there: the first file makes it."""
        return not self._root.exists()

    def digests(self, *, older_than_seconds: float = 0.0) -> Iterator[str]:
        """See `ArtifactStore`."""
        before = time.time() - older_than_seconds
        for folder in self._root.glob("[0-9a-f][0-9a-f]"):
            with os.scandir(folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        if DIGEST.fullmatch(entry.name) and entry.stat().st_mtime <= before:
                            yield entry.name

    def sweep(self, *, older_than_seconds: float = 10.0) -> int:
        """Remove what killed writers left behind; returns how many files that were.

        Files that were written to within `older_than_seconds` are left: between making, locking and
        renaming one there are moments without a lock.
        """
        before = time.time() - older_than_seconds
        swept = 0
        for path in self._root.glob(f"*/{_UNFINISHED}*"):
            try:
                with path.open("rb") as left:
                    fcntl.flock(left, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if os.fstat(left.fileno()).st_mtime >= before:
                        continue
                    path.unlink()
            except (FileNotFoundError, BlockingIOError):
                # Its writer has just finished or still writes, or another sweeper was faster.
                continue
            swept += 1
        if swept:
            _log.info("swept unfinished artifacts", extra={"files": swept})
        return swept

    def _check_there(self) -> None:
        # A folder that was there and is not (a disk that came off) is not made anew: what was
        # written to the new one would be hidden as soon as the old one is back.
        if self._was_there and not self._root.exists():
            raise StoreUnavailable(f"{self._root} is not there any more")
        if self._root.exists() and not os.access(self._root, os.W_OK | os.X_OK):
            raise StoreUnavailable(f"{self._root} cannot be written to")

    def _check_writing(self) -> None:
        # What permissions say is not all. The file has no name.
        try:
            with full_told(self._root), tempfile.TemporaryFile(dir=self._root) as probe:
                probe.write(b"?")
        except OSError as error:
            raise StoreUnavailable(
                f"{self._root} cannot be written to: {error.strerror}"
            ) from error

    @contextmanager
    def _answering(self) -> Generator[None]:
        """Tell a folder that does not answer from our own mistakes."""
        try:
            yield
        except OSError as error:
            # A sender that goes away is no fault of the folder.
            if error.errno in FULL or isinstance(error, ConnectionError):
                raise
            raise StoreUnavailable(f"{self._root} does not answer: {error.strerror}") from error

    @contextmanager
    def _found(self, artifact_id: str) -> Generator[Path]:
        """The path of an artifact; that there is none differs from a folder that is gone."""
        path = self._path(artifact_id)
        with self._answering():
            try:
                yield path
            except FileNotFoundError as error:
                if self._was_there and not self._root.exists():
                    raise
                raise not_found(artifact_id) from error

    def _path(self, artifact_id: str) -> Path:
        if not DIGEST.fullmatch(artifact_id):
            raise not_found(artifact_id)
        return self._root / artifact_id[:2] / artifact_id


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


if TYPE_CHECKING:
    # A mistake in the methods above is a type error here.
    _: ArtifactStore = LocalArtifactStore(Path())
