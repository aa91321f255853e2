"""Parts of a file over HTTP: one byte range, validators, and the bytes as a stream.

Source: RFC 9110, sections 13 (conditional requests) and 14 (range requests).
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import BinaryIO

from fastapi import HTTPException
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.http.entity_tags import is_named

_ONE_RANGE = re.compile(r"bytes=\s*(\d{0,18})-(\d{0,18})\s*")
_CHUNK = 1 << 20


@dataclass(frozen=True)
class Part:
    """The bytes of a file that a request asked for."""

    status: HTTPStatus
    start: int
    length: int
    headers: Mapping[str, str]


def requested_part(
    size: int,
    etag: str,
    *,
    range_header: str | None = None,
    if_range: str | None = None,
    if_none_match: str | None = None,
    kept_from: int = 0,
) -> Part:
    """What to answer to a request for a file of this size and (strong, quoted) entity tag.

    A range that is no single byte range is answered with the whole file, as the standard allows.
    Of a file whose first bytes are gone, all answers begin at `kept_from` or later.

    Raises:
        HTTPException: 416, the range begins behind the end of the file, or ends before the bytes
            that were kept.
    """
    headers = {"ETag": etag, "Accept-Ranges": "bytes"}
    if is_named(if_none_match, etag):
        return Part(HTTPStatus.NOT_MODIFIED, 0, 0, headers)
    kept = size - kept_from
    whole = Part(HTTPStatus.OK, kept_from, kept, {**headers, "Content-Length": str(kept)})
    match = _ONE_RANGE.fullmatch(range_header or "")
    if match is None or (if_range is not None and if_range != etag):
        return whole
    first, last = match.groups()
    if first:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
        if last and int(last) < int(first):
            return whole
    elif last:
        start, end = max(0, size - int(last)), size - 1
    else:
        return whole
    start = max(start, kept_from)
    if start >= size or start > end:
        raise HTTPException(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            f"range {range_header!r} begins behind the end; the file has {size} bytes",
            headers={"Content-Range": f"bytes */{size}", **headers},
        )
    length = end - start + 1
    return Part(
        HTTPStatus.PARTIAL_CONTENT,
        start,
        length,
        {
            **headers,
            "Content-Length": str(length),
            "Content-Range": f"bytes {start}-{end}/{size}",
        },
    )


class PartResponse(StreamingResponse):
    """A part of a file; the reader is closed however the answer ends, before its first byte too."""

    def __init__(
        self,
        reader: BinaryIO,
        part: Part,
        *,
        filename: str | None = None,
        media_type: str = "application/octet-stream",
    ) -> None:
        """Send `part` of `reader`; a browser saves it under `filename`."""
        headers = dict(part.headers)
        if filename is not None:
            headers["Content-Disposition"] = f'attachment; filename="{filename}"'
        super().__init__(
            _pieces(reader, part),
            status_code=part.status,
            media_type=media_type,
            headers=headers,
        )
        self._reader = reader

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the part."""
        with self._reader:
            await super().__call__(scope, receive, send)


def _pieces(reader: BinaryIO, part: Part) -> Iterator[bytes]:
    reader.seek(part.start)
    left = part.length
    while left > 0:
        chunk = reader.read(min(_CHUNK, left))
        if not chunk:
            return
        left -= len(chunk)
        yield chunk
