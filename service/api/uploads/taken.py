"""An upload from its first byte until its rows are written: within quotas, and in its turn."""

from collections.abc import Mapping
from typing import Any, TypeVar

from anyio import to_thread
from fastapi import Request, Response
from pydantic import BaseModel

from service.api.resources import Resources
from service.api.uploads.forms import receive
from service.api.uploads.intake import Taken, UploadIntake
from storage.accounts.quotas import Quotas
from storage.records import UploadRecord

_Record = TypeVar("_Record", bound=UploadRecord)


async def take(
    request: Request,
    held: Resources,
    intake: UploadIntake[_Record, Any],
) -> Taken[_Record]:
    """Receive a form and make something of it; what `receive` and the intake raise goes on.

    Raises:
        QuotaReached: the tenant has as many uploads under way as it may have, or no room for this.
    """
    tenant, quota = held.asker.tenant, await held.quotas.of(held.asker.tenant)
    stored = 0 if quota.stored_bytes is None else await to_thread.run_sync(_stored, held)
    declared = request.headers.get("content-length", "")
    with (
        held.uploads.one_more(
            tenant,
            quota,
            declared=int(declared) if declared.isascii() and declared.isdigit() else 0,
            stored=stored,
        ) as arrival,
        intake.folder() as folder,
    ):
        form = await receive(
            request,
            folder,
            files=intake.files,
            fields=intake.fields,
            arrived=arrival.take,
        )
        return await held.uploads.read(tenant, intake.take, form, folder)


def answer(response: Response, taken: Taken[_Record], path: str) -> _Record:
    """Say in a response of 201 where the record is, and with 200 that it was there already."""
    if not taken.is_new:
        response.status_code = 200
    response.headers["Location"] = path
    return taken.record


def form_schema(options: type[BaseModel], **files: str) -> dict[str, Any]:
    """An upload's form with descriptions of its files, for the OpenAPI document."""
    described: Mapping[str, Any] = {
        name: {"type": "string", "format": "binary", "description": description}
        for name, description in files.items()
    }
    schema = {
        "type": "object",
        "required": ["file"],
        "additionalProperties": False,
        "properties": {
            **described,
            "name": {"type": "string", "description": "by default the file's own"},
            **options.model_json_schema()["properties"],
        },
    }
    return {
        "requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}
    }


def _stored(held: Resources) -> int:
    with held.database.read() as session:
        return Quotas(session).used("stored_bytes", held.asker.tenant)
