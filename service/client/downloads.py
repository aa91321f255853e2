"""One file over HTTP, whole or not at all: into a file beside its place, checked, then renamed."""

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Self

from service.client.downloaded import Downloaded
from service.client.errors import Damaged
from service.client.transport.steps import Next, Opened, Steps
from service.data_dir.whole_files import usual_mode

ToldProgress = Callable[[int, int | None], None]
"""Called with the bytes so far and in all (null: not known)."""

Proof = Callable[[BinaryIO, str, str | None], str | None]
"""Why a file cannot be kept, by its bytes, their SHA-256 and the server's `ETag`; null: it can."""


def named_by_tag(_file: BinaryIO, digest: str, etag: str | None) -> str | None:
    """The bytes have to be those that the `ETag` names by their SHA-256."""
    named = (etag or "").removeprefix("W/").strip('"')
    if digest == named:
        return None
    return f"their sha256 is {digest}, but the server names {named or 'no digest'}"


def whole_zip(file: BinaryIO, _digest: str, _etag: str | None) -> str | None:
    """The bytes have to be a ZIP file whose files all have their own checksums.

    For what is written while it is sent: nobody knows its digest before.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
    except zipfile.BadZipFile as error:
        return f"they are no whole ZIP file: {error}"
    return None if damaged is None else f"{damaged!r} in them is damaged"


class Download:
    """A transfer that may break and go on.

    The digest comes with the first answer, as its `ETag`. After a break only the rest is asked for,
    on the condition that the file is still the same one.
    """

    def __init__(self, out: Path, told: ToldProgress) -> None:
        """Prepare to fetch into `out`, whose folder has to exist."""
        self._out = out
        self._told = told
        self._etag: str | None = None
        self._received = 0
        self._total: int | None = None
        # Renaming is atomic only within one file system, so the unfinished file lies beside.
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".part")
        self._file = os.fdopen(handle, "w+b")
        self._unfinished = Path(name)

    def __enter__(self) -> Self:
        """Use the download in a `with` statement, which leaves nothing unfinished behind."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove what was not kept."""
        self._file.close()
        self._unfinished.unlink(missing_ok=True)

    @property
    def is_complete(self) -> bool:
        """Whether all bytes are here."""
        return self._total is not None and self._received == self._total

    def headers(self) -> dict[str, str]:
        """What to ask for: everything, or the rest of the same file."""
        if self._etag is None or self._received == 0:
            # A compressed transfer could not be taken up in the middle.
            return {"Accept-Encoding": "identity"}
        return {
            "Accept-Encoding": "identity",
            "Range": f"bytes={self._received}-",
            "If-Range": self._etag,
        }

    def headers_elsewhere(self, etag: str | None) -> dict[str, str]:
        """What to ask of another host, which has the file that the server names by this `ETag`."""
        headers = self.headers()
        # Its own tags are others; the URL that it was named by holds for these bytes alone.
        headers.pop("If-Range", None)
        if etag != self._etag:
            headers.pop("Range", None)
        return headers

    def take(self, answer: Opened, *, etag: str | None = None) -> Steps[None]:
        """Write what an answer brings, after what is here or from the start.

        `etag` is what the server says of it, where another host answers.
        """
        response = answer.response
        length = response.headers.get("Content-Length")
        if response.status_code != HTTPStatus.PARTIAL_CONTENT:
            self._etag = etag or response.headers.get("ETag")
            self._received = 0
            self._file.truncate(0)
        self._total = None if length is None else self._received + int(length)
        self._file.seek(self._received)
        while (chunk := (yield Next(answer))) is not None:
            self._file.write(chunk)
            self._received += len(chunk)
            self._told(self._received, self._total)
        self._total = self._received

    def keep(self, proof: Proof) -> Downloaded:
        """Check the bytes and put the file in its place.

        Raises:
            Damaged: the proof says that the bytes are not those that the server sent.
        """
        self._file.flush()
        self._file.seek(0)
        digest = hashlib.file_digest(self._file, "sha256").hexdigest()
        damage = proof(self._file, digest, self._etag)
        if damage is not None:
            raise Damaged(f"{self._out.name}: {self._received} bytes arrived, but {damage}")
        os.fsync(self._file.fileno())
        self._unfinished.chmod(usual_mode())
        self._unfinished.replace(self._out)
        return Downloaded(path=self._out, sha256=digest, size=self._received)
