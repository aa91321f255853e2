"""The logs of attempts, for people: in words, in whichever form the worker wrote them."""

from collections.abc import Generator
from pathlib import Path

from starlette.responses import FileResponse, Response

from search.log_lines import is_event, readable
from service.written_streams import WrittenStream

_LOOKED_AT_LINES = 200
_MEDIA_TYPE = "text/plain; charset=utf-8"


def attempt_log(path: Path) -> Response:
    """A log file as an answer.

    Raises:
        OSError: it cannot be read.
    """
    with path.open(encoding="utf-8", errors="replace") as log:
        # Libraries print before and between our own lines.
        first = [line for _, line in zip(range(_LOOKED_AT_LINES), log, strict=False)]
    if any(is_event(line) for line in first):
        return WrittenStream(_in_words(path), media_type=_MEDIA_TYPE)
    return FileResponse(path, media_type=_MEDIA_TYPE)


def _in_words(path: Path) -> Generator[str]:
    with path.open(encoding="utf-8", errors="replace") as log:
        yield from map(readable, log)
