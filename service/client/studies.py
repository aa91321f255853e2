"""Studies from the client: submit, look at, steer, and hear what happens in them."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

import httpx2
from pydantic import BaseModel

from search.documents.spaces import DryRun
from service.api.events.schemas import Event
from service.api.paths import STUDIES, study_path
from service.api.studies.schemas import StudyDocument, StudyPage
from service.api.webhooks.schemas import DeliveryDocument, DeliveryList
from service.client.transport.backoff import TRANSIENT, NotYet
from service.client.transport.described import Described
from service.client.transport.steps import (
    Close,
    Item,
    Next,
    Opened,
    Steps,
    Stream,
    call,
    stream,
)


class _AllTold(Exception):
    """The study has ended, and the event asked after is its last."""


class StudyCalls(Described):
    """The calls that begin, show, steer and follow studies."""

    @call
    def dry_run(self, spec: Mapping[str, Any] | BaseModel) -> Steps[DryRun]:
        """Describe what a study would search, and store nothing."""
        params = {"dry_run": "true"}
        return (
            yield from self.ask(DryRun, "POST", STUDIES, body=spec_document(spec), params=params)
        )

    @stream
    def studies(
        self, *, state: str | None = None, tag: str | None = None, text: str | None = None
    ) -> Stream[StudyDocument]:
        """All studies, newest first, or those for which all holds that is asked for.

        Args:
            state: that they are in.
            tag: that they have.
            text: that their name, notes or tags contain, or their id begins with.
        """
        asked = {"state": state, "tag": tag, "text": text}
        yield from self.pages(StudyPage, STUDIES, asked)

    @call
    def study(self, study_id: str, *, patience: float | None = None) -> Steps[StudyDocument]:
        """One study and how far it is.

        Args:
            study_id: the study.
            patience: seconds that the server may stay away; by default the client's.
        """
        path = study_path(study_id)
        return (yield from self.ask(StudyDocument, "GET", path, patience=patience))

    @call
    def pause(self, study_id: str) -> Steps[StudyDocument]:
        """Pause a study until it is resumed. Asking twice is harmless."""
        return (yield from self.ask(StudyDocument, "POST", f"{study_path(study_id)}/pause"))

    @call
    def resume(self, study_id: str) -> Steps[StudyDocument]:
        """Resume a paused study. Asking twice is harmless."""
        return (yield from self.ask(StudyDocument, "POST", f"{study_path(study_id)}/resume"))

    @call
    def cancel(self, study_id: str) -> Steps[StudyDocument]:
        """End a study at once; what is complete stays. Asking twice is harmless."""
        return (yield from self.ask(StudyDocument, "POST", f"{study_path(study_id)}/cancel"))

    @call
    def change_budget(self, study_id: str, **budget: float | None) -> Steps[StudyDocument]:
        """Give a study another budget; null takes a limit away. A finished study runs on.

        Args:
            study_id: the study.
            budget: any of `trials`, `total_epochs`, `wall_seconds` and `device_hours`.
        """
        return (
            yield from self.ask(
                StudyDocument, "PATCH", study_path(study_id), body={"budget": budget}
            )
        )

    @call
    def change_priority(self, study_id: str, priority: int) -> Steps[StudyDocument]:
        """Let a study come before others, or after them, where slots become free."""
        return (
            yield from self.ask(
                StudyDocument, "PATCH", study_path(study_id), body={"priority": priority}
            )
        )

    @call
    def change_labels(
        self,
        study_id: str,
        *,
        name: str | None = None,
        tags: Sequence[str] | None = None,
        notes: str | None = None,
    ) -> Steps[StudyDocument]:
        """Give a study another name, tags or notes; what is null stays.

        Args:
            study_id: the study.
            name: what it is called from now on.
            tags: all of them from now on.
            notes: plain text; an empty one takes notes away.
        """
        named = {"name": name, "tags": None if tags is None else list(tags), "notes": notes}
        body = {field: value for field, value in named.items() if value is not None}
        return (yield from self.ask(StudyDocument, "PATCH", study_path(study_id), body=body))

    @call
    def delete(self, study_id: str) -> Steps[None]:
        """Delete a study that has ended, with all of its trials and files."""
        yield from self._remove(study_path(study_id))

    @call
    def deliveries(self, study_id: str) -> Steps[list[DeliveryDocument]]:
        """What was sent, or is to be sent, to the study's webhook, newest first."""
        return list(
            (yield from self.ask(DeliveryList, "GET", f"{study_path(study_id)}/webhooks")).items
        )

    @stream
    def watch(self, study_id: str, *, after: int = 0, patience: float = 120.0) -> Stream[Event]:
        """The study's events after a number, each once and in order, until the study has ended.

        A stream that breaks is taken up again after the last event that arrived.

        Raises:
            Unreachable: the server stayed away for more than `patience` seconds.
        """
        place = after
        while True:
            try:
                first, events = yield from self._again(
                    partial(self._heard, study_id, place), patience=patience
                )
            except _AllTold:
                return
            try:
                event: Event | None = first
                while event is not None:
                    place = event.number
                    yield Item(event)
                    event = yield from _following(events)
            except TRANSIENT:
                pass
            yield Close(events)

    def _heard(self, study_id: str, after: int) -> Steps[tuple[Event, Opened]]:
        """The first event of a stream, and the stream.

        Raises:
            NotYet: it ended before that, as it does when its server stops.
        """
        headers = {"Last-Event-ID": str(after)}
        path = f"{study_path(study_id)}/events"
        events = yield from self._stream(path, headers=headers, events=True)
        if events.response.status_code == HTTPStatus.NO_CONTENT:
            raise _AllTold
        first = yield from _following(events)
        if first is None:
            raise NotYet("its event stream stays empty")
        return first, events


def _following(events: Opened) -> Steps[Event | None]:
    """The next event of a stream; null at its end."""
    while True:
        event: httpx2.ServerSentEvent | None = yield Next(events)
        if event is None:
            return None
        if event.data and event.id.isdecimal():
            payload = json.loads(event.data)
            return Event(number=int(event.id), kind=event.event, payload=payload)


def spec_document(spec: Mapping[str, Any] | BaseModel) -> Any:
    """What is sent of a study's spec."""
    return spec.model_dump(mode="json") if isinstance(spec, BaseModel) else dict(spec)
