"""Deliveries: what users' own servers are to be sent, until it was delivered or given up."""

from datetime import datetime

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from storage.mapping import reader
from storage.records import DeliveryRecord
from storage.tables import WebhookDeliveryRow

_record = reader(DeliveryRecord)


class Deliveries:
    """The deliveries of one session.

    Nothing else is decided by them, so that they are changed without the lock on their study. They
    go with it: what concerns a delivery that is gone does nothing.
    """

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, record: DeliveryRecord) -> None:
        """Write down what is to be sent."""
        self._session.execute(insert(WebhookDeliveryRow).values(**vars(record)))

    def of_study(self, study_id: str) -> list[DeliveryRecord]:
        """All of a study, newest first."""
        rows = self._session.scalars(
            select(WebhookDeliveryRow)
            .where(WebhookDeliveryRow.study_id == study_id)
            .order_by(WebhookDeliveryRow.created_at.desc(), WebhookDeliveryRow.id)
        )
        return [_record(row) for row in rows]

    def due(self, now: datetime, *, limit: int) -> list[DeliveryRecord]:
        """What is to be sent by now, longest due first."""
        rows = self._session.scalars(
            select(WebhookDeliveryRow)
            .where(WebhookDeliveryRow.due_at <= now)
            .order_by(WebhookDeliveryRow.due_at, WebhookDeliveryRow.id)
            .limit(limit)
        )
        return [_record(row) for row in rows]

    def claim(self, delivery: DeliveryRecord, *, until: datetime) -> bool:
        """Take a due delivery for one try; False when another took it.

        Nobody else sends it until then, when it is due again unless its end was written.
        """
        claimed = self._session.scalar(
            update(WebhookDeliveryRow)
            .where(
                WebhookDeliveryRow.id == delivery.id, WebhookDeliveryRow.due_at == delivery.due_at
            )
            .values(due_at=until, tries=WebhookDeliveryRow.tries + 1)
            .returning(WebhookDeliveryRow.id)
        )
        return claimed is not None

    def put_off(self, delivery_id: str, *, until: datetime, reason: str | None) -> None:
        """Try again later."""
        self._change(delivery_id, due_at=until, reason=reason)

    def give_up(self, delivery_id: str, *, reason: str) -> None:
        """Try no more."""
        self._change(delivery_id, due_at=None, reason=reason)

    def delivered(self, delivery_id: str, *, at: datetime) -> None:
        """The receiver has it."""
        self._change(delivery_id, due_at=None, reason=None, delivered_at=at)

    def _change(self, delivery_id: str, **values: datetime | str | None) -> None:
        self._session.execute(
            update(WebhookDeliveryRow)
            .where(WebhookDeliveryRow.id == delivery_id, WebhookDeliveryRow.delivered_at.is_(None))
            .values(**values)
        )
