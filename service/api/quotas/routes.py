"""Quotas of the caller's tenant."""

from anyio import to_thread
from fastapi import APIRouter, Request

from service.api.quotas.documents import quota_document
from service.api.quotas.schemas import QuotaDocument
from service.api.resources import Held
from service.auth.gate import Guard
from service.http.problems import documented

router = APIRouter(prefix="/v1/quota", tags=["quota"])


@router.get("", responses=documented(403))
async def get_quota(request: Request, held: Held) -> QuotaDocument:
    """What your tenant may have of each thing that is limited, and what it has.

    A request that would go over one is refused with a problem of type `urn:reflectory:quota`, whose
    `quota`, `used` and `limit` say which: 409 where something has to end first, 507 where something
    has to be deleted, and 429 where it is enough to come again soon.
    """
    guard: Guard = request.app.state.guard
    quota = await held.quotas.of(held.asker.tenant)
    requests = guard.rates.made_for(held.asker.tenant, quota.requests_per_minute)
    return await to_thread.run_sync(quota_document, held, requests)
