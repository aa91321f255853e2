"""Logging in with a key, for browsers: the key comes in a form, and a signed cookie goes back."""

from urllib.parse import urlsplit

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.datastructures import FormData
from starlette.responses import Response

from service.auth import peer_of, scheme_of
from service.gate import Guard
from service.problems import problem_response
from service.resources import Whole
from service.routes.html import page_response
from storage.audit import Audit
from storage.engine import Database
from storage.keys import Keys, key_digest
from storage.records import LOCAL, ApiKeyRecord

LOGIN = "/login"
LOGOUT = "/logout"

_HOME = "/"
_FIELDS = 4
_LONGEST_FIELD = 4096

router = APIRouter(include_in_schema=False)


@router.get(LOGIN, response_class=HTMLResponse)
async def login_page(request: Request, whole: Whole, next: str = _HOME) -> HTMLResponse:
    """The form for a key, and the way out for whoever is logged in."""
    guard: Guard = request.app.state.guard
    key_id = guard.cookies.key_id(request.headers)
    known = None if key_id is None else await guard.keyring.get(key_id)
    name = None if known is None else known.name
    return page_response(whole.pages.login(_ours(next), known_as=name, refusal=None))


@router.post(LOGIN, response_model=None)
async def log_in(request: Request, whole: Whole) -> Response:
    """Give the browser a cookie for the form's key, or show the form again."""
    guard: Guard = request.app.state.guard
    async with request.form(max_files=0, max_fields=_FIELDS, max_part_size=_LONGEST_FIELD) as form:
        text, place = _field(form, "key").strip(), _ours(_field(form, "next"))
    key, address = await guard.keyring.find(text), peer_of(request.scope)
    if key is not None:
        await to_thread.run_sync(_note_login, whole.database, key, address)
        response = RedirectResponse(place, status_code=303)
        guard.cookies.give(response, key.id, secure=_is_secure(request))
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
    refusal = "This key is not known here, or was revoked."
    page = whole.pages.login(place, known_as=None, refusal=refusal)
    return page_response(page, status=401)


@router.post(LOGOUT, response_model=None)
def log_out(request: Request) -> RedirectResponse:
    """Have the browser forget its cookie."""
    guard: Guard = request.app.state.guard
    response = RedirectResponse(LOGIN, status_code=303)
    guard.cookies.take(response, secure=_is_secure(request))
    return response


def _note_login(database: Database, key: ApiKeyRecord, address: str) -> None:
    with database.of(key.tenant, key_id=key.id).write() as session:
        Audit(session).note("login", key.id, address=address)


def _note_refusal(database: Database, text: str, address: str) -> None:
    """Tell the tenant of a revoked key, and of a key that never was the local tenant."""
    with database.read() as session:
        revoked = Keys(session).find(digest=key_digest(text))
    tenant, subject = (LOCAL, "") if revoked is None else (revoked.tenant, revoked.id)
    with database.of(tenant).write() as session:
        Audit(session).note("login.refused", subject, address=address)


def _is_secure(request: Request) -> bool:
    return scheme_of(request.scope, request.headers) == "https"


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
