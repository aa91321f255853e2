"""The documentation that the server was built with, for people who read it here."""

from fastapi import APIRouter, HTTPException, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from service.api.resources import Held
from service.pages.html import page_response
from service.rendering.documentation import INDEX, Documentation

PREFIX = "/help"

router = APIRouter(prefix=PREFIX, include_in_schema=False)

_documentation = Documentation()

_PICTURE_HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}


@router.get("")
def begin() -> RedirectResponse:
    """The page with the table of contents."""
    return RedirectResponse(f"{PREFIX}/{INDEX}")


@router.get("/{path:path}", response_class=HTMLResponse)
def documentation_page(path: str, held: Held) -> Response:
    """One page or picture.

    Raises:
        HTTPException: 404, there is no such page.
    """
    page = _documentation.page(path)
    if page is not None:
        title, text = page
        return page_response(held.pages.documentation(path, title, text))
    picture = _documentation.picture(path)
    if picture is None:
        raise HTTPException(404, f"the documentation has no page {path!r}; {PREFIX} lists all")
    return Response(picture, media_type="image/svg+xml", headers=_PICTURE_HEADERS)
