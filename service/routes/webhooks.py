"""Webhooks: how far telling a user's server is, and the secret that it verifies them with."""

from datetime import datetime
from typing import Literal

from fastapi import APIRouter
from pydantic import Field

from models.spec import Spec
from service.problems import documented
from service.resources import Held
from service.secrets import signing_secret
from service.webhooks.signing import shown, webhook_key
from storage.records import DeliveryRecord
from storage.studies import Studies
from storage.webhooks import Deliveries

SECRET = "/v1/webhooks/secret"

router = APIRouter(tags=["webhooks"])


class DeliveryDocument(Spec):
    """One thing to tell, and how far that is."""

    id: str = Field(description="the `webhook-id` of every try")
    type: str = Field(description="study.finished, study.cancelled or study.failed")
    state: Literal["waiting", "delivered", "given_up"]
    tries: int
    next_try_at: datetime | None
    delivered_at: datetime | None
    reason: str | None = Field(description="why the last try failed")
    created_at: datetime


class DeliveryList(Spec):
    """All that a study's webhook was told, or is to be told, newest first."""

    items: tuple[DeliveryDocument, ...]


class WebhookSecret(Spec):
    """What verifies webhooks."""

    secret: str = Field(description="whsec_ and the key in base64, as Standard Webhooks writes it")


@router.get("/v1/studies/{study_id}/webhooks", responses=documented(403, 404))
def list_deliveries(study_id: str, held: Held) -> DeliveryList:
    """What the study's webhook was told: one delivery for each time that the study ended."""
    with held.database.read() as session:
        Studies(session).get(study_id)
        deliveries = Deliveries(session).of_study(study_id)
    return DeliveryList(items=tuple(_document(delivery) for delivery in deliveries))


@router.get(SECRET, responses=documented(403))
def get_webhook_secret(held: Held) -> WebhookSecret:
    """The secret that all webhooks of the tenant are signed with; needs the scope `admin`."""
    key = webhook_key(signing_secret(held.settings), held.asker.tenant)
    return WebhookSecret(secret=shown(key))


def _document(delivery: DeliveryRecord) -> DeliveryDocument:
    waits = "waiting" if delivery.due_at is not None else "given_up"
    return DeliveryDocument(
        id=delivery.id,
        type=str(delivery.body["type"]),
        state="delivered" if delivery.delivered_at is not None else waits,
        tries=delivery.tries,
        next_try_at=delivery.due_at,
        delivered_at=delivery.delivered_at,
        reason=delivery.reason,
        created_at=delivery.created_at,
    )
