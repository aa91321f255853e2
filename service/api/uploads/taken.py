"""An upload from its first byte until its rows are written: within quotas, and in its turn."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

from anyio import to_thread
from fastapi import Request

from service.api.resources import Resources
from service.api.uploads.forms import Form, receive
from storage.accounts.quotas import Quotas

_Taken = TypeVar("_Taken", covariant=True)


class Intake(Protocol[_Taken]):
    """What makes something of uploads."""

    def folder(self) -> AbstractContextManager[Path]:
        """A folder for one upload, which is gone when the block ends."""
        ...

    def take(self, form: Form, folder: Path) -> _Taken:
        """Make something of a form's files."""
        ...


async def take(
    request: Request,
    held: Resources,
    intake: Intake[_Taken],
    *,
    files: Sequence[str],
    fields: Sequence[str],
) -> _Taken:
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
        form = await receive(request, folder, files=files, fields=fields, arrived=arrival.take)
        return await held.uploads.read(tenant, intake.take, form, folder)


def _stored(held: Resources) -> int:
    with held.database.read() as session:
        return Quotas(session).used("stored_bytes", held.asker.tenant)
