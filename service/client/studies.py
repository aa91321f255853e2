"""Studies from the client: submit, look at, steer, and hear what happens in them."""

import json
import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import Any

import httpx2
from pydantic import BaseModel

from search.documents.spaces import DryRun
from service.api.events.schemas import Event
from service.api.paths import STUDIES, study_path
from service.api.studies.schemas import StudyDocument, StudyPage
from service.api.webhooks.schemas import DeliveryDocument, DeliveryList
from service.client.backoff import TRANSIENT, NotYet
from service.client.connection import Connection


class _AllTold(Exception):
    """The study has ended, and the event asked after is its last."""


class StudyCalls(Connection):
    """The calls that begin, show, steer and follow studies."""

    def submit(
        self, spec: Mapping[str, Any] | BaseModel, *, idempotency_key: str | None = None
    ) -> StudyDocument:
        """Store a study, which begins as soon as a slot is free.

        The same key with the same document gives the same study, however often it is sent; one is
        made where none is given, so that repeating after a fault stores nothing twice.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._ask(StudyDocument, "POST", STUDIES, body=_document(spec), headers=headers)

    def dry_run(self, spec: Mapping[str, Any] | BaseModel) -> DryRun:
        """Describe what a study would search, and store nothing."""
        params = {"dry_run": "true"}
        return self._ask(DryRun, "POST", STUDIES, body=_document(spec), params=params)

    def studies(self, *, state: str | None = None) -> Iterator[StudyDocument]:
        """All studies, newest first, or those in one state."""
        return self._pages(StudyPage, STUDIES, {"state": state})

    def study(self, study_id: str) -> StudyDocument:
        """One study and how far it is."""
        return self._ask(StudyDocument, "GET", study_path(study_id))

    def pause(self, study_id: str) -> StudyDocument:
        """Pause a study until it is resumed. Asking twice is harmless."""
        return self._ask(StudyDocument, "POST", f"{study_path(study_id)}/pause")

    def resume(self, study_id: str) -> StudyDocument:
        """Resume a paused study. Asking twice is harmless."""
        return self._ask(StudyDocument, "POST", f"{study_path(study_id)}/resume")

    def cancel(self, study_id: str) -> StudyDocument:
        """End a study at once; what is complete stays. Asking twice is harmless."""
        return self._ask(StudyDocument, "POST", f"{study_path(study_id)}/cancel")

    def change_budget(self, study_id: str, **budget: float | None) -> StudyDocument:
        """Give a study another budget; null takes a limit away. A finished study runs on.

        Args:
            study_id: the study.
            budget: any of `trials`, `total_epochs`, `wall_seconds` and `device_hours`.
        """
        return self._ask(StudyDocument, "PATCH", study_path(study_id), body={"budget": budget})

    def change_priority(self, study_id: str, priority: int) -> StudyDocument:
        """Let a study come before others, or after them, where slots become free."""
        return self._ask(StudyDocument, "PATCH", study_path(study_id), body={"priority": priority})

    def delete(self, study_id: str) -> None:
        """Delete a study that has ended, with all of its trials and files."""
        self._remove(study_path(study_id))

    def deliveries(self, study_id: str) -> list[DeliveryDocument]:
        """What was sent, or is to be sent, to the study's webhook, newest first."""
        return list(self._ask(DeliveryList, "GET", f"{study_path(study_id)}/webhooks").items)

    def watch(self, study_id: str, *, after: int = 0, patience: float = 120.0) -> Iterator[Event]:
        """The study's events after a number, each once and in order, until the study has ended.

        A stream that breaks is taken up again after the last event that arrived.

        Raises:
            Unreachable: the server stayed away for more than `patience` seconds.
        """
        place = after
        while True:
            try:
                events = self._again(partial(self._heard, study_id, place), patience=patience)
            except _AllTold:
                return
            try:
                for event in events:
                    place = event.number
                    yield event
            except TRANSIENT:
                continue

    def _heard(self, study_id: str, after: int) -> Iterator[Event]:
        """The events of one stream, the first of which has arrived.

        Raises:
            NotYet: it ended before that, as it does when its server stops.
        """
        events = self._listen(study_id, after=after)
        for first in events:
            return chain([first], events)
        raise NotYet("its event stream stays empty")

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
