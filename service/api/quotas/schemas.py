"""A tenant's quotas as the API answers with them."""

from typing import Literal

from pydantic import Field

from models.spec import Spec
from storage.tenant_quota import QuotaName

Unit = Literal["studies", "trials", "slots", "bytes", "uploads", "streams", "requests"]


class QuotaItem(Spec):
    """One quota, and how much of it is used."""

    limit: int | None = Field(description="null: no limit")
    used: int
    unit: Unit


class QuotaDocument(Spec):
    """What the caller's tenant may have, and what it has."""

    tenant: str
    weight: float = Field(
        description="share of the slots beside other tenants that want them: twice the weight, "
        "twice the slots"
    )
    items: dict[QuotaName, QuotaItem] = Field(
        description="by name; `uploads`, `streams`, `streams_per_key` (those of the key that asks) "
        "and `requests_per_minute` count what goes on at the API process that answers"
    )
