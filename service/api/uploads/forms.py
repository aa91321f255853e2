"""Forms with files (multipart/form-data), written to disk as they arrive.

Nothing that a client sends becomes part of a path: the files' names are text, no more.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from anyio import to_thread
from fastapi import HTTPException, Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from service.http.problems import ProblemFault, problem_response
from storage.blobs.artifacts import full_told

_MEDIA_TYPE = "multipart/form-data"
_LONGEST_FIELD = 4096
_LONGEST_HEADER = 65536
_ESCAPED = {"%22": '"', "%0D": "\r", "%0A": "\n"}
"""What browsers write for signs that a quoted file name cannot hold."""


class UploadRefused(Exception):
    """An upload that cannot be taken; each fault names its part of the form and what is wrong."""

    def __init__(self, *faults: ProblemFault) -> None:
        self.faults = faults
        super().__init__(
            "; ".join(f"{fault.path}: {fault.message}".removeprefix(": ") for fault in faults)
        )


@dataclass(frozen=True)
class ReceivedFile:
    """A file of a form, whole on our disk."""

    path: Path
    """Ours, without anything that the client sent."""
    name: str
    """The client's; text of any kind."""
    size: int
    sha256: str


@dataclass(frozen=True)
class Form:
    """All that came."""

    files: dict[str, ReceivedFile] = field(default_factory=dict[str, ReceivedFile])
    fields: dict[str, str] = field(default_factory=dict[str, str])


async def receive(
    request: Request,
    folder: Path,
    *,
    files: Sequence[str],
    fields: Sequence[str],
    arrived: Callable[[int], None],
) -> Form:
    """Read a request's form; its files are written into `folder` piece by piece.

    Args:
        request: its body was not read yet.
        folder: where the files go, under the names of `files`.
        files: the form's parts that are files.
        fields: its parts that are short text. What is empty counts as not given, as browsers send
            what nobody filled in.
        arrived: called with the number of bytes of each piece; what it raises ends the upload.

    Raises:
        UploadRefused: the body is no such form, or has other parts, or one of them twice.
        HTTPException: the body is too large (413), or the client went away (400).
        StoreFull: the disk of `folder` has no room for it.
    """
    # Closing a file writes what was not written yet, so it is closed within.
    with full_told(folder), ExitStack() as opened:
        reader = _FormReader(folder, files=files, fields=fields, opened=opened)
        parser = _parser(request, reader)
        try:
            async for piece in request.stream():
                arrived(len(piece))
                await to_thread.run_sync(parser.write, piece)
        except ClientDisconnect as error:
            raise HTTPException(400, "the client left in the middle of the upload") from error
        except FormParserError as error:
            raise _refused("", f"the body is no {_MEDIA_TYPE} that can be read: {error}") from error
        if not reader.is_complete:
            raise _refused("", "the body ends in the middle: the form's last boundary is missing")
        return reader.form


def refuse_upload(_request: Request, error: Exception) -> Response:
    """Answer `UploadRefused` with 422."""
    assert isinstance(error, UploadRefused)
    return problem_response(
        422,
        str(error),
        errors=error.faults,
        kind="urn:reflectory:upload-refused",
        title="The upload cannot be taken",
    )


class _FormReader:
    """Takes the events of the parser: which part begins, its headers, its bytes, its end."""

    def __init__(
        self, folder: Path, *, files: Sequence[str], fields: Sequence[str], opened: ExitStack
    ) -> None:
        self.form = Form()
        self.is_complete = False
        self._folder = folder
        self._files = files
        self._fields = fields
        self._opened = opened
        self._seen: set[str] = set()
        self._header: tuple[bytearray, bytearray] = bytearray(), bytearray()
        self._disposition = b""
        self._part: _FilePart | _FieldPart | None = None

    def begin_part(self) -> None:
        self._disposition = b""
        self._part = None

    def header_name(self, data: bytes, start: int, end: int) -> None:
        self._header[0].extend(data[start:end])

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1].extend(data[start:end])

    def end_header(self) -> None:
        name, value = map(bytes, self._header)
        if name.lower() == b"content-disposition":
            self._disposition = value
        self._header = bytearray(), bytearray()

    def begin_content(self) -> None:
        _, options = parse_options_header(self._disposition)
        name = options.get(b"name", b"").decode("utf-8", "replace")
        allowed = (*self._files, *self._fields)
        if name not in allowed:
            raise _refused(name[:80], f"unknown part; allowed are {', '.join(allowed)}")
        if name in self._seen:
            raise _refused(name, "this part came twice; it is taken once")
        self._seen.add(name)
        if name in self._fields:
            self._part = _FieldPart(name)
            return
        if b"filename" not in options:
            raise _refused(name, "this part has no filename; send it as a file")
        path = self._folder / self._files[self._files.index(name)]
        file = self._opened.enter_context(path.open("wb"))
        self._part = _FilePart(name, _unescaped(options[b"filename"]), path, file)

    def content(self, data: bytes, start: int, end: int) -> None:
        assert self._part is not None
        self._part.take(data[start:end])

    def end_part(self) -> None:
        assert self._part is not None
        self._part.finish(self.form)

    def end(self) -> None:
        self.is_complete = True


class _FilePart:
    def __init__(self, part: str, name: str, path: Path, file: BinaryIO) -> None:
        self._part = part
        self._name = name
        self._path = path
        self._file = file
        self._size = 0
        self._digest = hashlib.sha256()

    def take(self, piece: bytes) -> None:
        self._file.write(piece)
        self._digest.update(piece)
        self._size += len(piece)

    def finish(self, form: Form) -> None:
        self._file.close()
        if not self._name and not self._size:
            return
        form.files[self._part] = ReceivedFile(
            path=self._path, name=self._name, size=self._size, sha256=self._digest.hexdigest()
        )


class _FieldPart:
    def __init__(self, part: str) -> None:
        self._part = part
        self._text = bytearray()

    def take(self, piece: bytes) -> None:
        self._text += piece
        if len(self._text) > _LONGEST_FIELD:
            raise _refused(self._part, f"this is longer than {_LONGEST_FIELD} bytes")

    def finish(self, form: Form) -> None:
        try:
            text = self._text.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise _refused(self._part, f"this is no UTF-8: {error}") from error
        if text:
            form.fields[self._part] = text


def _parser(request: Request, reader: _FormReader) -> MultipartParser:
    media_type, options = parse_options_header(request.headers.get("content-type", ""))
    boundary = options.get(b"boundary")
    if media_type != _MEDIA_TYPE.encode() or not boundary:
        given = request.headers.get("content-type", "nothing")
        raise _refused("", f"the body has to be {_MEDIA_TYPE} with a boundary, not {given[:200]!r}")
    try:
        return MultipartParser(
            boundary,
            {
                "on_part_begin": reader.begin_part,
                "on_header_field": reader.header_name,
                "on_header_value": reader.header_value,
                "on_header_end": reader.end_header,
                "on_headers_finished": reader.begin_content,
                "on_part_data": reader.content,
                "on_part_end": reader.end_part,
                "on_end": reader.end,
            },
            max_header_size=_LONGEST_HEADER,
        )
    except FormParserError as error:
        raise _refused("", f"the body's boundary cannot be used: {error}") from error


def _unescaped(filename: bytes) -> str:
    text = filename.decode("utf-8", "replace")
    for written, sign in _ESCAPED.items():
        text = text.replace(written, sign)
    return text


def _refused(path: str, message: str) -> UploadRefused:
    return UploadRefused(ProblemFault(path=path, message=message))
