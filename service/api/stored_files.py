"""Stored files as routes give them out: whole, in part, or as the place where they are."""

import hashlib
import io
from base64 import b64encode
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Header, Response
from fastapi.responses import RedirectResponse

from service.api.resources import Resources
from service.http.ranges import PartResponse, requested_part
from storage.records import ArtifactRecord

_LINK_SECONDS = 300
"""How long a transfer may wait before it begins."""

BINARY = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
"""Bytes as an answer's or a body's content, for the OpenAPI document."""


def text(*media_types: str) -> dict[str, Any]:
    """Text likewise."""
    return {media_type: {"schema": {"type": "string"}} for media_type in media_types}


def file_responses(description: str) -> dict[int | str, dict[str, Any]]:
    """What a route that gives out a file answers; the file is described."""
    return {
        200: {"description": description, "content": BINARY},
        206: {"description": "The range that was asked for", "content": BINARY},
        304: {"description": "The file is the one that the client has"},
        307: {
            "description": "Where the file is, for some minutes and for everybody who has the URL; "
            "where the setting `downloads` says so. Its SHA-256 is the `ETag` of this answer"
        },
    }


@dataclass(frozen=True)
class WantedPart:
    """What a request says about the part that it wants."""

    range_header: str | None
    if_range: str | None
    if_none_match: str | None


def _wanted(
    range_header: Annotated[str | None, Header(alias="Range")] = None,
    if_range: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> WantedPart:
    return WantedPart(range_header, if_range, if_none_match)


Wanted = Annotated[WantedPart, Depends(_wanted)]
"""The part of a file that the request wants."""


def stored_file(
    held: Resources, artifact: ArtifactRecord, wanted: WantedPart, *, filename: str
) -> Response:
    """The part that is wanted of a stored file, or where it is; its entity tag is its digest.

    Bytes that are damaged are no answer of success that ends as one: what can be found before the
    first byte is a problem document, and what is found later breaks the transfer off, short of its
    `Content-Length`. `Repr-Digest` (RFC 9530) is what the whole file has to have.

    Raises:
        StoredBytesDamaged: the bytes are not what was stored; of a large file in a bucket, its
            first block is looked at.
        ArtifactNotFound: they are gone.
    """
    part = requested_part(artifact.size, f'"{artifact.sha256}"', **vars(wanted))
    if part.status == HTTPStatus.NOT_MODIFIED:
        return Response(status_code=part.status, headers=dict(part.headers))
    if held.settings.downloads == "redirect":
        # The bucket's own words for bytes that are gone are for nobody.
        held.store.size(artifact.sha256)
        elsewhere = held.store.link(artifact.sha256, filename=filename, seconds=_LINK_SECONDS)
        if elsewhere is not None:
            headers = {"ETag": part.headers["ETag"], "Cache-Control": "no-store"}
            return RedirectResponse(elsewhere, headers=headers)
    response = PartResponse(held.store.open_reader(artifact.sha256), part, filename=filename)
    digest = b64encode(bytes.fromhex(artifact.sha256)).decode()
    response.headers["Repr-Digest"] = f"sha-256=:{digest}:"
    return response


def made_bytes(content: bytes, wanted: WantedPart, *, filename: str) -> Response:
    """The part that is wanted of a file that is not stored, which is made of one that is."""
    part = requested_part(len(content), f'"{hashlib.sha256(content).hexdigest()}"', **vars(wanted))
    return PartResponse(io.BytesIO(content), part, filename=filename)
