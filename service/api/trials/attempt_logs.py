"""The logs of attempts, for people: in words, in whichever form the worker wrote them.

Of an attempt on this machine it is the file itself; of one elsewhere, what was sent of it last.
A range is for programs that follow a log. It has the bytes as they were written, for words are of
another length, and counts from the log's beginning, whether or not that was kept.
"""

import os
from collections.abc import Generator
from dataclasses import replace
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
_START = "Log-Start"
"""The header that says how many bytes were written before those that are sent."""


def attempt_log(path: Path, *, range_header: str | None) -> Response:
    """A log file as an answer, up to where it ended when it was asked for.

    Raises:
        OSError: it cannot be read.
        HTTPException: 416, the range begins behind the end.
    """
    if range_header is None:
        with path.open(encoding="utf-8", errors="replace") as log:
            # Libraries print before and between our own lines.
            first = [line for _, line in zip(range(_LOOKED_AT_LINES), log, strict=False)]
        if any(is_event(line) for line in first):
            headers = {_START: "0"}
            return WrittenStream(_in_words(path), media_type=_MEDIA_TYPE, headers=headers)
    reader = path.open("rb")
    return _part(reader, os.fstat(reader.fileno()).st_size, range_header)


def sent_log(store: ArtifactStore, sent: AttemptLogRecord, *, range_header: str | None) -> Response:
    """A log that was sent here, as an answer; a whole one begins with a notice of what was cut.

    Raises:
        ArtifactNotFound: a newer one took its place in this moment.
        HTTPException: 416, the range begins behind the end.
    """
    with store.open_reader(sent.sha256) as reader:
        content = reader.read()
    if range_header is not None:
        size = sent.cut + len(content)
        return _part(BytesIO(content), size, range_header, kept_from=sent.cut)
    lines = content.decode("utf-8", "replace").splitlines(keepends=True)
    if any(is_event(line) for line in lines[:_LOOKED_AT_LINES]):
        content = "".join(map(readable, lines)).encode()
    if sent.cut:
        content = f"[{sent.cut} bytes before this were not kept here]\n".encode() + content
    answer = _part(BytesIO(content), len(content), None)
    answer.headers[_START] = str(sent.cut)
    return answer


def _part(reader: BinaryIO, size: int, range_header: str | None, *, kept_from: int = 0) -> Response:
    """A part of a log, whose reader has what begins at `kept_from`."""
    try:
        part = requested_part(size, f'"{size}"', range_header=range_header, kept_from=kept_from)
    except HTTPException:
        reader.close()
        raise
    answer = PartResponse(
        reader, replace(part, start=part.start - kept_from), media_type=_MEDIA_TYPE
    )
    answer.headers[_START] = str(part.start)
    return answer


def _in_words(path: Path) -> Generator[str]:
    with path.open(encoding="utf-8", errors="replace") as log:
        yield from map(readable, log)
