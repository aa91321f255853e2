"""API keys of the asker's tenant: make, list, rotate, revoke."""

from datetime import UTC, datetime
from http import HTTPStatus

from fastapi import APIRouter, HTTPException, Response

from service.api.keys.durations import duration
from service.api.keys.schemas import (
    KeyDocument,
    KeyPage,
    KeyRequest,
    NewKeyDocument,
    RotationRequest,
)
from service.api.resources import Held, PageCursor, PageLimit
from service.api.rows import from_row
from service.auth.api_keys import NewKey, create_key, revoke_key, rotate_key
from service.auth.principal import WORK
from service.http.problems import documented
from storage.account_records import ApiKeyRecord
from storage.accounts.keys import Keys

PREFIX = "/v1/keys"


router = APIRouter(prefix=PREFIX, tags=["keys"])


_AS_USUAL = RotationRequest()


@router.post("", status_code=201, responses=documented(422))
def create_api_key(request: KeyRequest, held: Held, response: Response) -> NewKeyDocument:
    """Make a key for the same tenant.

    From the first key on, the local user needs one too.
    """
    made = create_key(
        held.database,
        name=request.name,
        scopes=request.scopes,
        lifetime=None if request.expires_in is None else duration(request.expires_in),
    )
    return _told(made, response)


@router.post("/{key_id}/rotate", status_code=201, responses=documented(404, 409, 422))
def rotate_api_key(
    key_id: str, held: Held, response: Response, request: RotationRequest = _AS_USUAL
) -> NewKeyDocument:
    """Make a key with the same name and scopes, which takes this one's place.

    The old one goes on for the overlap and then ends; a key is rotated once. Keys of machines
    (`work`) are rotated on the server's machine alone, by `reflectory keys rotate`.
    """
    with held.database.read() as session:
        scopes = Keys(session).get(key_id).scopes
    if WORK in scopes:
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            f"key {key_id!r} has the scope {WORK!r}; it is rotated on the server's machine alone, "
            "by `reflectory keys rotate`",
        )
    made = rotate_key(
        held.database,
        key_id,
        overlap=duration(request.overlap),
        lifetime=None if request.expires_in is None else duration(request.expires_in),
    )
    return _told(made, response)


@router.get("", responses=documented(422))
def list_api_keys(held: Held, limit: PageLimit = 50, cursor: PageCursor = None) -> KeyPage:
    """Keys of the tenant, newest first, those that have ended included."""
    with held.database.read() as session:
        page = Keys(session).page(limit=limit, cursor=cursor)
    return KeyPage(
        items=tuple(key_document(key) for key in page.items),
        next_cursor=page.next_cursor,
    )


@router.delete("/{key_id}", status_code=204, responses=documented(404))
def revoke_api_key(key_id: str, held: Held) -> None:
    """Let a key open nothing any more, within a second or two; asking twice is harmless."""
    revoke_key(held.database, key_id)


def key_document(key: ApiKeyRecord) -> KeyDocument:
    """A key as it is shown to admins."""
    return from_row(KeyDocument, key, state=key.state_at(datetime.now(UTC)))


def _told(made: NewKey, response: Response) -> NewKeyDocument:
    response.headers["Location"] = f"{PREFIX}/{made.record.id}"
    response.headers["Cache-Control"] = "no-store"
    return NewKeyDocument(**vars(key_document(made.record)), key=made.text)
