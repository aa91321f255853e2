"""The logs of attempts, for people: in words, in whichever form the worker wrote them.

Of an attempt on this machine it is the file itself; of one elsewhere, what was sent of it last.
"""

import os
from collections.abc import Generator
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

from fastapi import HTTPException
from starlette.responses import Response

from search.logs import is_event, readable
from service.http.ranges import PartResponse, requested_part
from service.http.written_streams import WrittenStream
from storage.blobs.artifacts import ArtifactStore
from storage.repositories.attempt_logs import AttemptLogRecord

_LOOKED_AT_LINES = 200
_MEDIA_TYPE = "text/plain; charset=utf-8"


def attempt_log(path: Path, *, range_header: str | None) -> Response:
    """A log file as an answer, up to where it ended when it was asked for.

    A log that was written as JSON is always sent whole.

    Raises:
        OSError: it cannot be read.
        HTTPException: 416, the range begins behind the end.
    """
    with path.open(encoding="utf-8", errors="replace") as log:
        # Libraries print before and between our own lines.
        first = [line for _, line in zip(range(_LOOKED_AT_LINES), log, strict=False)]
    if any(is_event(line) for line in first):
        return WrittenStream(_in_words(path), media_type=_MEDIA_TYPE)
    reader = path.open("rb")
    return _part(reader, os.fstat(reader.fileno()).st_size, range_header)


def sent_log(store: ArtifactStore, sent: AttemptLogRecord, *, range_header: str | None) -> Response:
    """A log that was sent here as an answer; one that lacks its beginning says so, and is whole.

    Raises:
        ArtifactNotFound: a newer one took its place in this moment.
        HTTPException: 416, the range begins behind the end.
    """
    with store.open_reader(sent.sha256) as reader:
        content = reader.read()
    lines = content.decode("utf-8", "replace").splitlines(keepends=True)
    if any(is_event(line) for line in lines[:_LOOKED_AT_LINES]):
        content = "".join(map(readable, lines)).encode()
    if sent.cut:
        notice = f"[{sent.cut} bytes before this were not kept here]\n".encode()
        content, range_header = notice + content, None
    return _part(BytesIO(content), len(content), range_header)


def _part(reader: BinaryIO, size: int, range_header: str | None) -> Response:
    try:
        part = requested_part(size, f'"{size}"', range_header=range_header)
    except HTTPException:
        reader.close()
        raise
    return PartResponse(reader, part, media_type=_MEDIA_TYPE)


def _in_words(path: Path) -> Generator[str]:
    with path.open(encoding="utf-8", errors="replace") as log:
        yield from map(readable, log)
