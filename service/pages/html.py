"""How our own pages are answered: as HTML that may load and send nothing but to this server."""

from fastapi.responses import HTMLResponse

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)

# A browser that names no referrer would not name our page as a form's origin either, and the form
# would be refused as a stranger's.
_HEADERS = {"Content-Security-Policy": POLICY, "Referrer-Policy": "same-origin"}


def page_response(text: str, *, status: int = 200) -> HTMLResponse:
    """A page of ours."""
    return HTMLResponse(text, status_code=status, headers=_HEADERS)
