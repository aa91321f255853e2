"""Plotly's script and style sheet, out of the installed wheel."""

from typing import Annotated

from fastapi import APIRouter, Header, Query, Response

from service.http.entity_tags import IfNoneMatch, is_named
from service.rendering.plotly_bundle import PlotlyBundle, plotly_bundle

router = APIRouter(prefix="/assets", include_in_schema=False)

Version = Annotated[str, Query(max_length=50)]


@router.get("/plotly.min.js")
def get_plotly(
    v: Version = "",
    accept_encoding: Annotated[str, Header()] = "",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """The script that draws figures."""
    bundle = plotly_bundle()
    headers = _headers(bundle, v)
    if is_named(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    is_compressed = "gzip" in accept_encoding
    body = bundle.compressed if is_compressed else bundle.file.read_bytes()
    packed = {"Content-Encoding": "gzip"} if is_compressed else {}
    return Response(body, media_type="text/javascript", headers=headers | packed)


@router.get("/plotly.css")
def get_plotly_style(v: Version = "", if_none_match: IfNoneMatch = None) -> Response:
    """Its style rules, which the pages' policy lets no script write."""
    bundle = plotly_bundle()
    headers = _headers(bundle, v)
    if is_named(if_none_match, headers["ETag"]):
        return Response(status_code=304, headers=headers)
    return Response(bundle.style, media_type="text/css", headers=headers)


def _headers(bundle: PlotlyBundle, wanted: str) -> dict[str, str]:
    """What an address with the version names never changes."""
    is_named_by_version = wanted == bundle.version
    return {
        "ETag": f'"plotly-{bundle.version}"',
        "Vary": "Accept-Encoding",
        "Cache-Control": "public, max-age=31536000, immutable"
        if is_named_by_version
        else "public, no-cache",
    }
