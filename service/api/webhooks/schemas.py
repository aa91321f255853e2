"""Deliveries of webhooks as the API answers with them."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from models.spec import Spec


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
    """All that was sent, or is to be sent, to a study's webhook, newest first."""

    items: tuple[DeliveryDocument, ...]


class WebhookSecret(Spec):
    """What verifies webhooks."""

    secret: str = Field(description="whsec_ and the key in base64, as Standard Webhooks writes it")
