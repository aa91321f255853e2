"""The cookie of a browser that logged in: random text, by which the server knows its session."""

import re
from http.cookies import CookieError, SimpleCookie

from starlette.datastructures import Headers
from starlette.responses import Response

_NAME = "reflectory"
_TEXT = re.compile(r"[A-Za-z0-9_-]{43}")


def cookie_name(*, secure: bool) -> str:
    """The cookie's name; over HTTPS one that browsers take from this very host alone."""
    return f"__Host-{_NAME}" if secure else _NAME


def give_cookie(response: Response, text: str, *, seconds: int, secure: bool) -> None:
    """Have the browser keep a cookie; over HTTPS (`secure`), for HTTPS alone."""
    response.set_cookie(
        cookie_name(secure=secure),
        text,
        max_age=seconds,
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax",
    )


def take_cookie(response: Response, *, secure: bool) -> None:
    """Have the browser forget it."""
    name = cookie_name(secure=secure)
    response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="lax")


def shown_cookie(headers: Headers, *, secure: bool) -> str | None:
    """The text of the request's cookie; null without one that could be ours."""
    for header in headers.getlist("cookie"):
        try:
            found = SimpleCookie(header).get(cookie_name(secure=secure))
        except CookieError:
            continue
        if found is not None:
            return found.value if _TEXT.fullmatch(found.value) else None
    return None
