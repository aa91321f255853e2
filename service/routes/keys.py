"""API keys of the asker's tenant: make, list, revoke."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field

from models.spec import Spec
from service.api_keys import LONGEST_NAME, create_key, revoke_key
from service.principal import Scope, UserScope
from service.problems import documented
from service.resources import Held, PageCursor, PageLimit
from storage.keys import Keys
from storage.records import ApiKeyRecord

PREFIX = "/v1/keys"

router = APIRouter(prefix=PREFIX, tags=["keys"])


class KeyRequest(Spec):
    """The key that is asked for."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "laptop", "scopes": ["write"]}]}
    )

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)] = Field(
        description="what it is for, or who has it; people are told it"
    )
    scopes: tuple[UserScope, ...] = Field(
        default=("write",),
        min_length=1,
        description="`read`, `write` or `admin`, each of which includes those before it",
    )


class KeyDocument(Spec):
    """A key, without its text."""

    id: str
    name: str
    tenant: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    last_used_at: datetime | None = Field(description="to the minute")
    revoked_at: datetime | None


class NewKeyDocument(KeyDocument):
    """A key that was just made."""

    key: str = Field(description="its text, which is told here and never again")


class KeyPage(Spec):
    """Keys, newest first."""

    items: tuple[KeyDocument, ...]
    next_cursor: str | None


@router.post("", status_code=201, responses=documented(422))
def create_api_key(request: KeyRequest, held: Held, response: Response) -> NewKeyDocument:
    """Make a key for the same tenant.

    From the first key on, the local user needs one too.
    """
    made = create_key(held.database, name=request.name, scopes=request.scopes)
    response.headers["Location"] = f"{PREFIX}/{made.record.id}"
    response.headers["Cache-Control"] = "no-store"
    return NewKeyDocument(**vars(key_document(made.record)), key=made.text)


@router.get("", responses=documented(422))
def list_api_keys(held: Held, limit: PageLimit = 50, cursor: PageCursor = None) -> KeyPage:
    """Keys of the tenant, newest first, revoked ones included."""
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
    return KeyDocument.model_validate(vars(key))
