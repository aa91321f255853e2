"""Studies from the client: submit, look at, steer, and hear what happens in them."""

import json
import uuid
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import httpx2
from pydantic import BaseModel

from service.answers import Deliveries, Delivery, DryRun, Event, Study
from service.backoff import TRANSIENT, Backoff, pause_asked
from service.client.connection import Connection
from service.client.paths import STUDIES, study_path


class _AllTold(Exception):
    """The study has ended, and the event asked after is its last."""


class StudyCalls(Connection):
    """The calls that begin, show, steer and follow studies."""

    def submit(
        self, spec: Mapping[str, Any] | BaseModel, *, idempotency_key: str | None = None
    ) -> Study:
        """Store a study, which begins as soon as a slot is free.

        The same key with the same document gives the same study, however often it is sent; one is
        made where none is given, so that repeating after a fault stores nothing twice.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._ask(Study, "POST", STUDIES, body=_document(spec), headers=headers)

    def dry_run(self, spec: Mapping[str, Any] | BaseModel) -> DryRun:
        """Describe what a study would search, and store nothing."""
        params = {"dry_run": "true"}
        return self._ask(DryRun, "POST", STUDIES, body=_document(spec), params=params)

    def studies(self, *, state: str | None = None) -> Iterator[Study]:
        """All studies, newest first, or those in one state."""
        return self._pages(Study, STUDIES, {"state": state})

    def study(self, study_id: str) -> Study:
        """One study and how far it is."""
        return self._ask(Study, "GET", study_path(study_id))

    def pause(self, study_id: str) -> Study:
        """Hold a study until it is resumed. Asking twice is harmless."""
        return self._ask(Study, "POST", f"{study_path(study_id)}/pause")

    def resume(self, study_id: str) -> Study:
        """Let a paused study go on. Asking twice is harmless."""
        return self._ask(Study, "POST", f"{study_path(study_id)}/resume")

    def cancel(self, study_id: str) -> Study:
        """End a study at once; what is complete stays. Asking twice is harmless."""
        return self._ask(Study, "POST", f"{study_path(study_id)}/cancel")

    def change_budget(self, study_id: str, **budget: float | None) -> Study:
        """Give a study another budget; null takes a limit away. A finished study runs on.

        Args:
            study_id: the study.
            budget: any of `trials`, `total_epochs`, `wall_seconds` and `device_hours`.
        """
        return self._ask(Study, "PATCH", study_path(study_id), body={"budget": budget})

    def change_priority(self, study_id: str, priority: int) -> Study:
        """Let a study come before others, or after them, where slots become free."""
        return self._ask(Study, "PATCH", study_path(study_id), body={"priority": priority})

    def delete(self, study_id: str) -> None:
        """Delete a study that has ended, with all of its trials and files."""
        self._remove(study_path(study_id))

    def deliveries(self, study_id: str) -> list[Delivery]:
        """What the study's webhook was told, or is to be told, newest first."""
        return self._ask(Deliveries, "GET", f"{study_path(study_id)}/webhooks").items

    def watch(self, study_id: str, *, after: int = 0, patience: float = 120.0) -> Iterator[Event]:
        """The study's events after a number, each once and in order, until the study has ended.

        A stream that breaks is taken up again after the last event that arrived.

        Raises:
            Unreachable: the server stayed away for more than `patience` seconds.
        """
        place = after
        backoff = Backoff(patience)
        while True:
            before = place
            fault = None
            try:
                for event in self._listen(study_id, after=place):
                    place = event.number
                    backoff.succeeded()
                    yield event
            except _AllTold:
                return
            except TRANSIENT as error:
                fault = error
            # A stream also ends, without a fault, when its server stops.
            stuck = fault is not None or place == before
            if stuck and not backoff.wait(at_least=pause_asked(fault)):
                raise self._unreachable(fault) from fault

    def _listen(self, study_id: str, *, after: int) -> Iterator[Event]:
        headers = {"Last-Event-ID": str(after)}
        with self._stream(f"{study_path(study_id)}/events", headers=headers) as response:
            if response.status_code == HTTPStatus.NO_CONTENT:
                raise _AllTold
            for event in httpx2.EventSource(response):
                if event.data and event.id.isdecimal():
                    payload = json.loads(event.data)
                    yield Event(number=int(event.id), kind=event.event, payload=payload)


def _document(spec: Mapping[str, Any] | BaseModel) -> Any:
    return spec.model_dump(mode="json") if isinstance(spec, BaseModel) else dict(spec)
