"""Following studies and collections while their server is away for less than two minutes."""

import json
from collections.abc import Iterator

import pytest

from service.api.events.schemas import Event
from service.api.fronts.schemas import FrontDocument
from service.api.studies.schemas import StudyDocument
from service.commands import collections
from service.commands.connection import Asked
from service.commands.shown import following
from service.commands.shown.following import follow
from service.commands.studies import watched_to_the_end
from storage.records import StudyRecord
from storage.repositories.studies import Studies
from tests.service.away import AwayClient
from tests.service.commands.test_collections_commands import TWO
from tests.service.listening import listening
from tests.service.site import Site

MORE = 2
"""Requests that reach nobody after all events have been heard."""


@pytest.fixture
def client(site: Site) -> Iterator[AwayClient]:
    with listening(site) as (host, port), AwayClient(f"http://{host}:{port}") as client:
        yield client


@pytest.fixture
def done(site: Site) -> StudyRecord:
    study = site.study()
    site.run(study)
    site.finish(study)
    return study


class Seen:
    """A view that remembers, and whose server goes away once it has shown a standing."""

    def __init__(self, client: AwayClient, events: int) -> None:
        self.events = 0
        self.standings = 0
        self._client = client
        self._away = events + MORE

    def event(self, event: Event) -> None:
        del event
        self.events += 1

    def standing(self, study: StudyDocument, front: FrontDocument) -> None:
        del study, front
        self.standings += 1
        self._client.away = self._away if self.standings == 1 else 0


def test_a_standing_that_cannot_be_had_is_left_out(
    client: AwayClient, done: StudyRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "_REFRESH_SECONDS", 0.0)
    events = len(list(client.watch(done.id)))
    view = Seen(client, events)
    assert follow(client, done.id, view).state == "finished"
    assert (view.events, view.standings) == (events, 2)


def test_the_last_look_at_a_study_is_as_patient_as_its_events(
    client: AwayClient, done: StudyRecord, capsys: pytest.CaptureFixture[str]
) -> None:
    study = client.study(done.id)
    client.away = MORE
    assert watched_to_the_end(client, study, as_json=True).state == "finished"
    assert client.away == 0
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["payload"]["state"] == "finished"


def test_a_collection_is_followed_while_its_server_is_away(
    client: AwayClient, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collections, "_LOOK_SECONDS", 0.01)
    collection = client.submit_collection(TWO)
    assert not collection.ended
    for member in collection.studies:
        with site.database.read() as session:
            study = Studies(session).get(member.study)
        site.run(study)
        site.finish(study)
    client.away = MORE
    collections._follow(Asked(client, True), collection)
    assert client.away == 0
