"""From the route that takes a study to its row: how many files the document goes through."""

import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from fastapi import FastAPI, Response
from starlette.testclient import TestClient

import search.samplers
import search.studies.spec
import search.tasks
import search.training.trial_spec
import service
from search.studies import submission
from search.studies.spec import StudySpec
from service.api.resources import Resources
from service.api.studies.routes import submit_study
from service.api.studies.schemas import StudyDocument
from service.auth.principal import LOCAL_USER
from storage.fleet.coordinators import CoordinatorRecord, Coordinators, SlotRecord
from tests.service.site import SMALL_SPEC, Site

MOST_HAND_OVERS = 15

_PARTS = (
    Path(search.tasks.__file__).parent,
    Path(search.samplers.__file__).parent,
    Path(search.training.trial_spec.__file__),
    Path(search.studies.spec.__file__),
)
"""Files of a document's parts, and of the document itself."""
_ROOT = Path(service.__file__).parents[1]


class HandOvers:
    """Counts calls from one file of `service` or `search` to another, the first call first."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._places: dict[str, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _arg: object) -> None:
        if event == "return" and frame.f_code is submission.submit.__code__:
            sys.setprofile(None)
        if event == "call" and frame.f_back is not None:
            caller, callee = self._place(frame.f_back), self._place(frame)
            if caller is not None and callee is not None and caller != callee:
                self.counts[caller, callee] += 1

    def _place(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if name not in self._places:
            self._places[name] = _place(Path(name))
        return self._places[name]


def _place(path: Path) -> str | None:
    if any(path.is_relative_to(folder) for folder in _PARTS):
        return None
    ours = any(path.is_relative_to(_ROOT / package) for package in ("service", "search"))
    return str(path.relative_to(_ROOT)) if ours else None


def test_a_study_is_handed_over_a_few_times_from_its_route_to_its_row(
    site: Site, client: TestClient
) -> None:
    """At most 15 hand-overs until the row is stored, on a server with a slot of known memory.

    A hand-over is a call of a function in another file, both in `service` or `search`; however
    often one file calls another, it is one. Left out are the packages below (`models`, `storage`),
    calls that a library makes for us, and what the document says of itself: its own properties, and
    its parts (a task, a sampler, the training), of which others are asked for other documents.
    """
    app = client.app
    assert isinstance(app, FastAPI)
    resources: Resources = app.state.resources
    now = datetime.now(UTC)
    slot = SlotRecord(name="one", device="cpu", model="a CPU", share=1.0, memory=1 << 40)
    with site.database.write() as session:
        Coordinators(session).report(
            CoordinatorRecord(
                owner="one",
                slots=(slot,),
                measuring_slots=(),
                figures={},
                started_at=now,
                seen_at=now,
            )
        )
    spec, held = StudySpec.model_validate(SMALL_SPEC), resources.of(LOCAL_USER)
    found = HandOvers()
    sys.setprofile(found)
    try:
        document = submit_study(spec, held, Response())
    finally:
        sys.setprofile(None)
    assert isinstance(document, StudyDocument)
    files = [f"{caller} -> {callee}" for caller, callee in found.counts]
    assert 5 < len(files) <= MOST_HAND_OVERS, "\n".join(files)
