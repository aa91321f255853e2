"""Stores of bytes that are named by their SHA-256: what has a name is whole."""

import errno
import hashlib
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from io import SEEK_END
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from storage.errors import (
    ArtifactDamaged,
    ArtifactNotFound,
    StoreFull,
)
from storage.records import ArtifactRecord

FULL = (errno.ENOSPC, errno.EDQUOT)
DIGEST = re.compile(r"[0-9a-f]{64}")
"""What an artifact's id looks like."""


class ArtifactStore(Protocol):
    """Where artifacts are kept.

    Every method raises `StoreUnavailable` when the store does not answer. An artifact's id is the
    SHA-256 of its bytes, in lower-case hexadecimal. The first three methods are those of Optuna's
    artifact stores.
    """

    def open_reader(self, artifact_id: str) -> BinaryIO:
        """Open the bytes for reading, from the first; the caller closes.

        Raises:
            ArtifactNotFound: if there are none under this id.
            StoredBytesDamaged: if what is stored does not have the digest that names it.
        """
        ...

    def write(self, artifact_id: str, content_body: BinaryIO) -> None:
        """Store the bytes, whole or not at all; doing it again is harmless, and mends damaged ones.

        Raises:
            ArtifactDamaged: if the id is not their digest.
            StoreFull: if there is no room for them.
        """
        ...

    def remove(self, artifact_id: str) -> None:
        """Remove the bytes.

        Raises:
            ArtifactNotFound: if there are none under this id.
        """
        ...

    def remove_all(self, artifact_ids: Sequence[str]) -> int:
        """Remove the bytes of those ids that there are; returns how many that may have been.

        Transactions wait for this: a store that is far away does it with one request.
        """
        ...

    def size(self, artifact_id: str) -> int:
        """How many bytes there are.

        Raises:
            ArtifactNotFound: if there are none under this id.
        """
        ...

    def link(self, artifact_id: str, *, filename: str, seconds: int) -> str | None:
        """A URL under which anybody can fetch the bytes for so long, to be saved as `filename`.

        None if this store gives out none. That there are such bytes is for `size` to tell.
        """
        ...

    def check_access(self) -> None:
        """Prove that the store is there and lets us in, before anything depends on it.

        Raises:
            StoreRefused: if it does not.
        """
        ...

    def check_room(self) -> None:
        """Prove that something can be stored.

        Raises:
            StoreFull: if nothing is taken.
        """
        ...

    def is_new(self) -> bool:
        """Whether nothing seems ever to have been stored here."""
        ...

    def sweep(self) -> int:
        """Remove what killed writers left behind; returns how many pieces that were."""
        ...

    def digests(self, *, older_than_seconds: float = 0.0) -> Iterator[str]:
        """The ids of all that is stored and was last written at least so long ago, in no order."""
        ...


@contextmanager
def full_told(place: Path) -> Generator[None]:
    """Tell a disk that is full from other faults of writing to `place`.

    Raises:
        StoreFull: it is, or a quota is used up.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise StoreFull(f"{place} has no room: {error.strerror}") from error


def store_stream(
    store: ArtifactStore,
    stream: BinaryIO,
    at: datetime,
    *,
    expected_sha256: str | None = None,
    check: Callable[[BinaryIO], None] | None = None,
) -> ArtifactRecord:
    """Store all that a stream gives from its beginning, under its digest; it is read twice.

    Args:
        store: where to.
        stream: one that can be set back; read in pieces.
        at: the time of the record.
        expected_sha256: what the sender says the digest is; without it, the stream is what it is.
        check: is given all of it before anything is stored, and raises what it has against it.

    Raises:
        ArtifactDamaged: if the digest is not the expected one; nothing is stored then.
        StoreFull: if there is no room; nothing is stored then.
    """
    # Every binary file has `readinto`, whatever `BinaryIO` says.
    digest = hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()
    size = stream.seek(0, SEEK_END)
    if expected_sha256 is not None and digest != expected_sha256.lower():
        raise ArtifactDamaged(
            f"{size} bytes have the digest {digest}, announced was {expected_sha256[:80]!r}"
        )
    if check is not None:
        stream.seek(0)
        check(stream)
    stream.seek(0)
    store.write(digest, stream)
    return ArtifactRecord(sha256=digest, size=size, created_at=at)


def restore_if_missing(store: ArtifactStore, artifact_id: str, stream: BinaryIO) -> None:
    """Store bytes again that were removed after they were written; see Note [Named bytes stay]."""
    try:
        store.size(artifact_id)
    except ArtifactNotFound:
        stream.seek(0)
        store.write(artifact_id, stream)


def not_found(artifact_id: str) -> ArtifactNotFound:
    """The error for an id that names nothing."""
    return ArtifactNotFound(f"there is no artifact {artifact_id[:80]!r}")
