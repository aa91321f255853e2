"""Webhooks: how far telling a user's server is, and the secret that it verifies them with."""

from fastapi import APIRouter

from service.api.resources import Held
from service.api.rows import from_row
from service.api.webhooks.schemas import DeliveryDocument, DeliveryList, WebhookSecret
from service.data_dir.secrets import signing_secret
from service.http.problems import documented
from service.webhooks.signing import shown, webhook_key
from storage.records import DeliveryRecord
from storage.repositories.studies import Studies
from storage.repositories.webhooks import Deliveries

SECRET = "/v1/webhooks/secret"

router = APIRouter(tags=["webhooks"])


@router.get("/v1/studies/{study_id}/webhooks", responses=documented(403, 404))
def list_deliveries(study_id: str, held: Held) -> DeliveryList:
    """What was sent to the study's webhook: one delivery for each time that the study ended."""
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
    return from_row(
        DeliveryDocument,
        delivery,
        type=str(delivery.body["type"]),
        state="delivered" if delivery.delivered_at is not None else waits,
        next_try_at=delivery.due_at,
    )
