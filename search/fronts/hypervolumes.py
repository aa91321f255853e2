"""How the hypervolume of a study's front grew, as the coordinator noted it whenever it changed."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import cast, final

from sqlalchemy.orm import Session

from search.documents.fronts import HypervolumePoint
from storage.records import StudyRecord
from storage.repositories.events import Events

FRONT = "front"
"""The kind of the events that tell of another front."""


@dataclass
class _Grown:
    """How far a study's events were read, and what they told."""

    last_event: int = 0
    trials: object = None
    points: tuple[HypervolumePoint, ...] = ()


@final
class Growth:
    """How the hypervolumes of studies grew; of each, later events are read alone.

    Events never change, so that what they told stays. Threads may share this.
    """

    def __init__(self, *, size: int = 256) -> None:
        """Remember the `size` studies that were asked for last."""
        self._size = size
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Grown] = OrderedDict()

    def of(self, session: Session, study: StudyRecord) -> tuple[HypervolumePoint, ...]:
        """Every change of the front, in order; none where a study has no hypervolume.

        A coordinator that is started again tells of the front that it finds; that is no change.
        The study is as its session reads it.
        """
        with self._lock:
            known = self._known.get(study.id, _Grown())
        if known.last_event > study.last_event:
            known = _Grown()
        grown = _grown(session, study, known)
        with self._lock:
            self._known[study.id] = grown
            self._known.move_to_end(study.id)
            while len(self._known) > self._size:
                self._known.popitem(last=False)
        return grown.points


def _grown(session: Session, study: StudyRecord, known: _Grown) -> _Grown:
    found, before = list(known.points), known.trials
    for event in Events(session).of_kind(study.id, FRONT, after=known.last_event):
        payload = event.payload
        if payload["hypervolume"] is None or payload["trials"] == before:
            continue
        before = payload["trials"]
        found.append(
            HypervolumePoint(
                trial=cast(int | None, payload.get("trial")),
                epochs_trained=cast(int | None, payload.get("epochs_trained")),
                wall_seconds=cast(float | None, payload.get("wall_seconds")),
                at=event.created_at,
                hypervolume=cast(float, payload["hypervolume"]),
                points=len(cast(list[int], before)),
            )
        )
    return _Grown(last_event=study.last_event, trials=before, points=tuple(found))
