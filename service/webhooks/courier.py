"""Delivers what is due to users' own servers, in a thread of the coordinator.

See Note [Delivered at least once] in `service/README.md`.
"""

import asyncio
import json
import logging
import random
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Any, final

from sqlalchemy.exc import SQLAlchemyError
from standardwebhooks import Webhook

from search.background import Background
from service.api.studies.schemas import StudyLinks
from service.webhooks.sending import NotTaken, Unwanted, send
from service.webhooks.signing import webhook_key
from storage.engine import Database
from storage.errors import NotFound, StorageError
from storage.records import DeliveryRecord
from storage.repositories.studies import Studies
from storage.repositories.webhooks import Deliveries

_log = logging.getLogger(__name__)

PAUSES: Sequence[float] = (5.0, 60.0, 300.0, 1800.0, 7200.0, 18000.0, 28800.0, 36000.0)
"""Seconds after each failed try: about a day in all."""

CLAIM_SECONDS = 60.0
"""How long a try is one coordinator's own: longer than it takes, the host's name included."""

_JITTER = 0.2
_AT_A_TIME = 4
_POLL_SECONDS = 0.5


@final
class Courier(Background):
    """A thread that delivers what is due, see Note [Delivered at least once]."""

    def __init__(
        self,
        database: Database,
        *,
        secret: bytes,
        allow_private: bool,
        pauses: Sequence[float] = PAUSES,
        claim_seconds: float = CLAIM_SECONDS,
    ) -> None:
        """`secret` is the server's: each tenant's key follows from it."""
        super().__init__("courier")
        self._database = database
        self._secret = secret
        self._allow_private = allow_private
        self._pauses = pauses
        self._claim_seconds = claim_seconds

    def _work(self) -> None:
        asyncio.run(self._deliver_due())

    async def _deliver_due(self) -> None:
        at_work: set[asyncio.Task[None]] = set()
        while not self._closing.is_set():
            for delivery in self._claimed(_AT_A_TIME - len(at_work)):
                task = asyncio.create_task(self._deliver(delivery))
                at_work.add(task)
                task.add_done_callback(at_work.discard)
            await asyncio.sleep(_POLL_SECONDS)
        for task in at_work:
            task.cancel()
        await asyncio.gather(*at_work, return_exceptions=True)

    def _claimed(self, most: int) -> list[DeliveryRecord]:
        """What is due and now ours to send."""
        ours: list[DeliveryRecord] = []
        if most <= 0:
            return ours
        now = datetime.now(UTC)
        until = now + timedelta(seconds=self._claim_seconds)
        with _later():
            with self._database.read() as session:
                due = Deliveries(session).due(now, limit=most)
            for delivery in due:
                with self._database.write() as session:
                    if Deliveries(session).claim(delivery, until=until):
                        ours.append(delivery)
        return ours

    async def _deliver(self, delivery: DeliveryRecord) -> None:
        fields = {"study_id": delivery.study_id, "delivery": delivery.id}
        with _later():
            try:
                body, headers = self._letter(delivery)
                await send(delivery.url, body, headers, allow_private=self._allow_private)
            except NotFound:
                return  # the study was deleted, and this with it
            except asyncio.CancelledError:
                self._again(delivery, reason=delivery.reason, seconds=0.0)
                raise
            except NotTaken as failed:
                _log.warning("a webhook was not taken", extra={**fields, "reason": str(failed)})
                self._after(delivery, failed)
            except (StorageError, SQLAlchemyError):
                raise
            except Exception as error:
                # It counts as a try, for what was not foreseen may come again at each one.
                _log.exception("a webhook cannot be sent", extra=fields)
                self._after(delivery, NotTaken(f"it cannot be sent: {type(error).__name__}"))
            else:
                with self._database.write() as session:
                    Deliveries(session).delivered(delivery.id, at=datetime.now(UTC))
                _log.info("a webhook was delivered", extra=fields)

    def _letter(self, delivery: DeliveryRecord) -> tuple[bytes, dict[str, str]]:
        """What is sent: the same bytes at every try, signed for the time of this one."""
        with self._database.read() as session:
            study = Studies(session).get(delivery.study_id)
        data: Any = delivery.body["data"]
        links = StudyLinks.of(study.id).model_dump(mode="json")
        document = {**delivery.body, "data": {**data, "links": links}}
        body = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
        signer = Webhook(webhook_key(self._secret, study.tenant))
        now = datetime.now(UTC)
        return body, {
            "webhook-id": delivery.id,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": signer.sign(delivery.id, now, body.decode()),
            "User-Agent": f"Reflectory/{version('reflectory')}",
        }

    def _after(self, delivery: DeliveryRecord, failed: NotTaken) -> None:
        """Try again later, unless the receiver wants none or it was tried often enough."""
        tries, reason = delivery.tries + 1, str(failed)
        if not isinstance(failed, Unwanted) and tries <= len(self._pauses):
            pause = self._pauses[tries - 1] * random.uniform(1 - _JITTER, 1 + _JITTER)
            self._again(delivery, reason=reason, seconds=pause)
            return
        with self._database.write() as session:
            Deliveries(session).give_up(
                delivery.id, reason=f"given up after {tries} tries; the last: {reason}"
            )

    def _again(self, delivery: DeliveryRecord, *, reason: str | None, seconds: float) -> None:
        until = datetime.now(UTC) + timedelta(seconds=seconds)
        with self._database.write() as session:
            Deliveries(session).put_off(delivery.id, until=until, reason=reason)


@contextmanager
def _later() -> Generator[None]:
    """Leave what the database does not take now to the next look, which finds it as it was."""
    try:
        yield
    except (StorageError, SQLAlchemyError) as error:
        _log.warning("webhooks wait", extra={"reason": str(error).partition("\n")[0]})
