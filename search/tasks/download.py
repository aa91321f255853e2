"""Fetching files over HTTP, checked against their checksums."""

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from search.errors import DataError
from search.tasks.sources import DownloadProgress

if TYPE_CHECKING:
    from pooch import Pooch  # pyright: ignore[reportMissingTypeStubs]

_CHUNK_BYTES = 64 * 1024
_SECONDS_BETWEEN_REPORTS = 0.2


def sha256_of(path: Path) -> str:
    """Give the SHA-256 of a file's bytes, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class _Reporter:
    """A progress bar in the form that pooch asks for, which reports instead of drawing.

    Pooch sets `total`, calls `update` with the size of a chunk (the last one may be smaller than it
    says) and, when all is here, `reset` and `update(total)`.
    """

    def __init__(self, file: str, progress: DownloadProgress) -> None:
        self.total = 0
        self._file = file
        self._progress = progress
        self._received = 0
        self._reported_at: float | None = None

    def update(self, size: int) -> None:
        """Count `size` more bytes and report them, unless a report went out just now."""
        received = self._received + size
        self._received = min(received, self.total) if self.total else received
        now = time.monotonic()
        due = self._reported_at is None or now - self._reported_at >= _SECONDS_BETWEEN_REPORTS
        if due or (self.total and self._received == self.total):
            self._reported_at = now
            self._progress(self._file, self._received, self.total)

    def reset(self) -> None:
        """Count from nothing again."""
        self._received = 0

    def close(self) -> None:
        """Nothing is drawn, so that nothing has to be closed."""


def fetch(
    checksums: Mapping[str, str],
    folder: Path,
    *,
    url: str,
    progress: DownloadProgress | None = None,
    retries: int = 2,
) -> dict[str, Path]:
    """Bring files into a folder, unless they are there already, whole.

    A file appears under its name only when all its bytes are there and its checksum is right.

    Args:
        checksums: SHA-256 in hexadecimal digits by file name.
        folder: where the files go; made if need be.
        url: the files' common address; a file's name is appended to it.
        progress: called with how far each file is.
        retries: how often a transfer that broke off, or gave a wrong checksum, is tried again.

    Returns:
        The files' paths by name.

    Raises:
        DataError: A file could not be had, or its checksum is not the known one.
    """
    # With all that it imports, it is there where something is fetched.
    import pooch  # pyright: ignore[reportMissingTypeStubs]

    base = url if url.endswith("/") else f"{url}/"
    library = pooch.create(  # pyright: ignore[reportUnknownMemberType] -- typed in part
        path=folder,
        base_url=base,
        registry={name: f"sha256:{checksum}" for name, checksum in checksums.items()},
        retry_if_failed=retries,
    )
    return {name: _fetch_one(library, name, progress=progress) for name in checksums}


def _fetch_one(library: "Pooch", name: str, *, progress: DownloadProgress | None) -> Path:
    import pooch  # pyright: ignore[reportMissingTypeStubs]

    bar = _Reporter(name, progress) if progress is not None else False
    # Pooch documents that any progress bar will do and that `fetch` takes its downloaders; its
    # annotations say otherwise.
    downloader = pooch.HTTPDownloader(
        progressbar=bar,  # pyright: ignore[reportArgumentType]
        chunk_size=_CHUNK_BYTES,
    )
    try:
        return Path(library.fetch(name, downloader=downloader))  # pyright: ignore[reportArgumentType]
    except (ValueError, OSError) as error:  # the errors of requests are OSErrors
        raise DataError(
            f"{name} could not be fetched from {library.get_url(name)}: {error}"
        ) from error
