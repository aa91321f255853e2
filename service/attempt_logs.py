"""The logs of attempts, for people: in words, in whichever form the worker wrote them."""

import os
from collections.abc import Generator
from pathlib import Path

from fastapi import HTTPException
from starlette.responses import Response

from search.log_lines import is_event, readable
from service.ranges import PartResponse, requested_part
from service.written_streams import WrittenStream

_LOOKED_AT_LINES = 200
_MEDIA_TYPE = "text/plain; charset=utf-8"


def attempt_log(path: Path, *, range_header: str | None) -> Response:
    """A log file as an answer, up to where it ended when it was asked for.

    A log that was written as JSON is always told whole.

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
    try:
        size = os.fstat(reader.fileno()).st_size
        part = requested_part(
            size, f'"{size}"', range_header=range_header, if_range=None, if_none_match=None
        )
    except HTTPException:
        reader.close()
        raise
    return PartResponse(reader, part, media_type=_MEDIA_TYPE)


def _in_words(path: Path) -> Generator[str]:
    with path.open(encoding="utf-8", errors="replace") as log:
        yield from map(readable, log)
