"""A tenant's quotas, counted where they are used."""

from service.api.quotas.schemas import QuotaDocument, QuotaItem, Unit
from service.api.resources import Resources
from storage.accounts.quotas import Quotas
from storage.tenant_quota import QUOTA_NAMES, QuotaName

_UNITS: dict[QuotaName, Unit] = {
    "studies": "studies",
    "queued_trials": "trials",
    "slots": "slots",
    "stored_bytes": "bytes",
    "uploads": "uploads",
    "streams": "streams",
    "streams_per_key": "streams",
    "requests_per_minute": "requests",
}


def quota_document(held: Resources, requests: int) -> QuotaDocument:
    """The quotas of who asks; `requests` came within the last minute."""
    tenant = held.asker.tenant
    here: dict[QuotaName, int] = {
        "uploads": held.uploads.under_way(tenant),
        "streams": held.streams.of_tenant(tenant),
        "streams_per_key": held.streams.of_key(held.asker),
        "requests_per_minute": requests,
    }
    with held.database.read() as session:
        quotas = Quotas(session)
        quota = quotas.of(tenant)
        return QuotaDocument(
            tenant=tenant,
            weight=quota.weight,
            items={
                name: QuotaItem(
                    limit=quota.limit(name),
                    used=here[name] if name in here else quotas.used(name, tenant),
                    unit=_UNITS[name],
                )
                for name in QUOTA_NAMES
            },
        )
