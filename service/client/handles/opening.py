"""Studies as handles: submitted anew, or found by what people call them."""

import re
import uuid
from collections.abc import Mapping
from http import HTTPStatus
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel

from service.api.paths import STUDIES
from service.api.studies.schemas import StudyDocument, StudyPage
from service.client.errors import NoSuchStudy, Refused
from service.client.handles.study import StudyHandle
from service.client.studies import StudyCalls, spec_document
from service.client.transport.described import Described
from service.client.transport.steps import Item, Steps, call

_Study = TypeVar("_Study", bound=StudyHandle)

_LATEST = re.compile(r"latest(?:~([0-9]{1,4}))?")
_SHORTEST = 4
"""Letters of an id that may stand for the whole."""
_NAMED = 3
"""How many studies a message names."""


def submit_as(kind: type[_Study]):
    """The call `submit`, which gives studies of one kind."""

    @call
    def submit(
        self: Described,
        spec: Mapping[str, Any] | BaseModel,
        *,
        idempotency_key: str | None = None,
    ) -> Steps[_Study]:
        """Store a study, which begins as soon as a slot is free.

        The same key with the same document gives the same study, however often it is sent; one is
        made where none is given, so that repeating after a fault stores nothing twice.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        body = spec_document(spec)
        study = yield from self.ask(StudyDocument, "POST", STUDIES, body=body, headers=headers)
        return kind.of(self, study)

    return submit


def open_as(kind: type[_Study]):
    """The call `open`, which gives studies of one kind."""

    @call
    def open(self: Described, reference: str) -> Steps[_Study]:
        """A study that is there, by what people call it.

        The reference is an id, its first letters (4 or more), a name in full, `latest`, or
        `latest~1` for the one before.

        Raises:
            NoSuchStudy: none goes by it, or several do.
        """
        return kind.of(self, (yield from found(self, reference)))

    return open


def found(client: Described, reference: str) -> Steps[StudyDocument]:
    """The study that a reference stands for.

    Raises:
        NoSuchStudy: none goes by it, or several do.
    """
    latest = _LATEST.fullmatch(reference)
    if latest is not None:
        place = int(latest[1] or 0)
        newest = yield from _first(client, place + 1, {})
        if len(newest) > place:
            return newest[place]
        raise NoSuchStudy(f"there are {len(newest)} studies, so that none is {reference}")
    try:
        return (yield from StudyCalls.study.steps(client, reference))
    except Refused as error:
        if error.problem.status != HTTPStatus.NOT_FOUND:
            raise
    # An older server does not know these filters, and sends all.
    named = yield from _first(client, None, {"name": reference})
    candidates = [study for study in named if study.name == reference]
    if len(reference) >= _SHORTEST:
        begun = yield from _first(client, None, {"prefix": reference})
        candidates += [study for study in begun if study.id.startswith(reference)]
    ids = {study.id for study in candidates}
    if len(ids) == 1:
        return candidates[0]
    if ids:
        raise NoSuchStudy(f"{reference!r} stands for {len(ids)} studies: {_names(candidates)}")
    newest = yield from _first(client, _NAMED, {})
    among = f"the newest are {_names(newest)}" if newest else "there are none"
    raise NoSuchStudy(
        f"no study has the id or name {reference!r}, or an id of {_SHORTEST} letters or more that "
        f"begins so; {among}"
    )


def _first(
    client: Described, count: int | None, query: Mapping[str, str | None]
) -> Steps[list[StudyDocument]]:
    """The first studies of a list, newest first; all of them for null."""
    pages = client.pages(StudyPage, STUDIES, query)
    found: list[StudyDocument] = []
    outcome: Any = None
    while count is None or len(found) < count:
        try:
            step = pages.send(outcome)
        except StopIteration:
            break
        outcome = None
        if isinstance(step, Item):
            found.append(step.value)
        else:
            outcome = yield step
    return found


def _names(studies: list[StudyDocument]) -> str:
    return ", ".join(f"{study.id} ({study.name})" for study in islice(studies, _NAMED))
