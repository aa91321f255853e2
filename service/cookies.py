"""The cookie of a browser that logged in with a key: the key's id and a time, signed."""

from http.cookies import CookieError, SimpleCookie

from itsdangerous import BadSignature, URLSafeTimedSerializer
from starlette.datastructures import Headers
from starlette.responses import Response

_NAME = "reflectory"
# Whatever else is signed with the same secret is no cookie.
_PURPOSE = "reflectory login cookie"


class LoginCookies:
    """Gives out cookies and reads them.

    A cookie is good for as long as its key is, and for no more than `seconds`.
    """

    def __init__(self, secret: bytes, *, seconds: int) -> None:
        self._signer = URLSafeTimedSerializer(secret, salt=_PURPOSE)
        self._seconds = seconds

    def give(self, response: Response, key_id: str, *, secure: bool) -> None:
        """Have the browser keep a cookie; over HTTPS (`secure`), for HTTPS alone."""
        response.set_cookie(
            _NAME,
            self._signer.dumps(key_id),  # pyright: ignore[reportUnknownMemberType]
            max_age=self._seconds,
            path="/",
            secure=secure,
            httponly=True,
            samesite="lax",
        )

    def take(self, response: Response, *, secure: bool) -> None:
        """Have the browser forget it."""
        response.delete_cookie(_NAME, path="/", secure=secure, httponly=True, samesite="lax")

    def key_id(self, headers: Headers) -> str | None:
        """The id of the key that the request's cookie was given for; null without a good cookie."""
        for header in headers.getlist("cookie"):
            try:
                found = SimpleCookie(header).get(_NAME)
            except CookieError:
                continue
            if found is not None:
                return self._read(found.value)
        return None

    def _read(self, value: str) -> str | None:
        try:
            key_id: object = self._signer.loads(value, max_age=self._seconds)  # pyright: ignore[reportUnknownMemberType]
        except BadSignature:
            return None
        return key_id if isinstance(key_id, str) else None
