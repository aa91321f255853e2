"""Logging in with a key, for browsers: a form brings the key, and a session's cookie goes back."""

from urllib.parse import urlsplit

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import FormData
from starlette.responses import Response

from service.api.resources import Whole
from service.auth.cookies import give_cookie, shown_cookie, take_cookie
from service.auth.gate import Guard
from service.auth.origins import peer_of
from service.http.problems import problem_response
from service.pages.html import page_response
from storage.accounts.audit import Audit
from storage.accounts.keys import Keys, key_digest
from storage.engine import Database
from storage.records import LOCAL

LOGIN = "/login"
LOGOUT = "/logout"

_HOME = "/"
_FIELDS = 4
_LONGEST_FIELD = 4096

router = APIRouter(include_in_schema=False)


@router.get(LOGIN, response_class=HTMLResponse)
async def login_page(request: Request, whole: Whole, next: str = _HOME) -> HTMLResponse:
    """The form for a key, and the way out for those who are logged in."""
    guard: Guard = request.app.state.guard
    login = await guard.logins.find(shown_cookie(request.headers, secure=_is_secure(request)))
    if login is None:
        page = whole.pages.login(_ours(next))
    else:
        browsers = await guard.logins.count(login.key)
        page = whole.pages.login(_ours(next), known_as=login.key.name, browsers=browsers)
    return page_response(page)


@router.post(LOGIN, response_model=None)
async def log_in(request: Request, whole: Whole) -> Response:
    """Begin a session with the form's key, in place of the last one, or show the form again."""
    guard: Guard = request.app.state.guard
    async with request.form(max_files=0, max_fields=_FIELDS, max_part_size=_LONGEST_FIELD) as form:
        text, place = _field(form, "key").strip(), _ours(_field(form, "next"))
    key, address = await guard.keyring.find(text), peer_of(request.scope)
    if key is not None:
        secure = _is_secure(request)
        last = shown_cookie(request.headers, secure=secure)
        text = await guard.logins.begin(key, replacing=last, address=address)
        response = RedirectResponse(place, status_code=303)
        give_cookie(response, text, seconds=guard.logins.seconds, secure=secure)
        return response
    wait = guard.rates.refusal(address)
    if wait is not None:
        return problem_response(
            429,
            f"too many wrong keys came from this address; ask again in {wait} s",
            kind="urn:reflectory:too-many-requests",
            title="Too many requests",
            headers={"Retry-After": str(wait)},
        )
    await to_thread.run_sync(_note_refusal, whole.database, text, address)
    refusal = await guard.keyring.why_not(text)
    page = whole.pages.login(place, refusal=f"Not logged in: {refusal}.")
    return page_response(page, status=401)


@router.post(LOGOUT, response_model=None)
async def log_out(request: Request) -> RedirectResponse:
    """End the browser's session; with a field `everywhere`, all that began with the same key."""
    guard: Guard = request.app.state.guard
    async with request.form(max_files=0, max_fields=_FIELDS, max_part_size=_LONGEST_FIELD) as form:
        everywhere = "everywhere" in form
    secure = _is_secure(request)
    await guard.logins.end(shown_cookie(request.headers, secure=secure), everywhere=everywhere)
    response = RedirectResponse(LOGIN, status_code=303)
    take_cookie(response, secure=secure)
    return response


def _note_refusal(database: Database, text: str, address: str) -> None:
    """Tell the tenant of a key that has ended, and of a key that never was the local tenant."""
    with database.read() as session:
        ended = Keys(session).find(digest=key_digest(text))
    tenant, subject = (LOCAL, "") if ended is None else (ended.tenant, ended.id)
    with database.of(tenant).write() as session:
        Audit(session).note("login.refused", subject, address=address)


def _is_secure(request: Request) -> bool:
    return request.scope["scheme"] == "https"


def _field(form: FormData, name: str) -> str:
    value = form.get(name)
    return value if isinstance(value, str) else ""


def _ours(place: str) -> str:
    """A path of this server, whatever was asked for: nobody is sent elsewhere after logging in."""
    plain = place.isprintable() and "\\" not in place
    try:
        parts = urlsplit(place)
    except ValueError:
        return _HOME
    inside = place.startswith("/") and not place.startswith("//")
    return place if plain and inside and not (parts.scheme or parts.netloc) else _HOME
