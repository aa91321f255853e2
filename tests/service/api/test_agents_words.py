"""What agents say of attempts: each word counts once, and one that is refused stands alone."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from search.dispatch.runs.measuring_queue import measure_models_job
from search.studies.spec import StudySpec
from service.app import create_app
from storage.accounts.quotas import Quotas
from storage.endings import AttemptCause, StudyCause
from storage.records import LOCAL, AttemptState, TrialState
from storage.repositories.attempts import Attempts
from storage.repositories.events import Events
from storage.repositories.measurements import Measurements
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.search.honest_words import DEVICE, files, measurement, resume_file
from tests.service.machines import Machine, artifact, end, epoch, log, reported
from tests.service.site import Lease, Site, now


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    with TestClient(create_app(site.settings), base_url="http://localhost:8080") as client:
        yield client


@pytest.fixture
def machine(client: TestClient) -> Machine:
    return Machine(client)


def running(site: Site, number: int = 0) -> tuple[str, Lease[Any]]:
    study = site.study()
    site.run(study)
    for one in range(number + 1):
        site.trial(study, one, state=TrialState.RUNNING)
    return study.id, site.lease(study, number)


def stored(lease: Lease[Any]) -> list[dict[str, Any]]:
    return [artifact(role, content) for role, content in files(lease.job).items()]


def attempt_state(site: Site, lease: Lease[Any]) -> tuple[AttemptState, AttemptCause | None]:
    with site.database.read() as session:
        found = Attempts(session).get(lease.attempt)
    return found.state, found.cause


def events(site: Site, study_id: str, kind: str) -> int:
    with site.database.read() as session:
        return sum(event.kind == kind for event in Events(session).after(study_id, 0, limit=999))


def test_a_trial_is_told_in_one_sync_and_telling_it_again_changes_nothing(
    client: TestClient, machine: Machine, site: Site
) -> None:
    study_id, lease = running(site)
    for _ in range(2):
        said = machine.speak(lease, epoch(1), epoch(2), *stored(lease), end(), beat=1.0)
        # What has ended is not alive, and its beat is all that is refused.
        assert [one["item"] for one in said["refused"]] in ([], [None])
    trial = client.get(f"/v1/studies/{study_id}/trials/0").json()
    assert (trial["outcome"], trial["values"]["quality"]) == ("complete", 0.5)
    assert attempt_state(site, lease) == (AttemptState.ENDED, AttemptCause.COMPLETE)
    assert events(site, study_id, "epoch") == 2
    assert events(site, study_id, "trial") == 1


def test_an_attempt_that_waited_for_its_place_begins_by_its_own_word(
    client: TestClient, machine: Machine, site: Site
) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.QUEUED)
    lease = site.lease(study, 0, state=AttemptState.ASSIGNED)
    assert machine.speak(lease, beat=0.0)["refused"] == []
    trial = f"/v1/studies/{study.id}/trials/0"
    assert client.get(trial).json()["outcome"] == "queued"
    why_not = ("conflict", f"attempt {lease.attempt} has not begun")
    assert machine.why_not(lease, epoch(1)) == [why_not]
    began = {"kind": "began", "waited_seconds": 1e6}
    assert machine.why_not(lease, began, epoch(1)) == []
    assert client.get(trial).json()["outcome"] == "running"
    assert machine.why_not(lease, began, epoch(2), *stored(lease), end()) == []
    assert attempt_state(site, lease) == (AttemptState.ENDED, AttemptCause.COMPLETE)
    assert events(site, study.id, "trial") == 2
    assert machine.why_not(lease, began) == []


def test_an_attempt_that_was_recalled_does_not_begin(machine: Machine, site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.QUEUED)
    lease = site.lease(study, 0, state=AttemptState.ASSIGNED)
    with site.database.write() as session:
        assert Attempts(session).recall(lease.attempt)
    began = {"kind": "began", "waited_seconds": 0.0}
    assert [why for why, _ in machine.why_not(lease, began, epoch(1))] == ["lease", "lease"]
    with site.database.read() as session:
        assert Trials(session).get(study.id, 0).state is TrialState.QUEUED


def test_a_word_that_is_refused_undoes_nothing_of_the_others(machine: Machine, site: Site) -> None:
    (one, first), (two, second) = running(site), running(site)
    words = [
        {"attempt": lease.attempt, **epoch(number)}
        for number in (1, 2)
        for lease in (first, second)
    ]
    tokens = {first.attempt: "another", second.attempt: second.token}
    said = machine.say(*words, tokens=tokens, beats={first.attempt: {}, second.attempt: {}}).json()
    refused = [(each["attempt"], each["item"], each["why"]) for each in said["refused"]]
    assert sorted(refused, key=str) == sorted(
        [(first.attempt, place, "lease") for place in (0, 2, None)], key=str
    )
    assert (events(site, one, "epoch"), events(site, two, "epoch")) == (0, 2)


def test_what_cannot_be_ends_its_attempt_and_no_other(machine: Machine, site: Site) -> None:
    (_, liar), (study_id, honest) = running(site), running(site)
    words = [
        {"attempt": liar.attempt, **epoch(1)},
        {"attempt": liar.attempt, **epoch(2, validation=7.0)},
        {"attempt": liar.attempt, **epoch(2)},
        {"attempt": honest.attempt, **epoch(1)},
    ]
    tokens = {lease.attempt: lease.token for lease in (liar, honest)}
    said = machine.say(*words, tokens=tokens).json()
    assert [(one["item"], one["why"]) for one in said["refused"]] == [(1, "invalid"), (2, "lease")]
    assert attempt_state(site, liar) == (AttemptState.ENDED, AttemptCause.IMPOSSIBLE)
    assert attempt_state(site, honest) == (AttemptState.RUNNING, None)
    assert events(site, study_id, "epoch") == 1


def test_a_trial_is_not_complete_without_what_people_download(
    client: TestClient, machine: Machine, site: Site
) -> None:
    study_id, lease = running(site)
    [(why, detail)] = machine.why_not(lease, epoch(1), epoch(2), end())
    assert why == "conflict"
    assert "without its checkpoint and report" in detail
    assert attempt_state(site, lease) == (AttemptState.RUNNING, None)
    assert machine.why_not(lease, *stored(lease), end()) == []
    assert client.get(f"/v1/studies/{study_id}/trials/0").json()["outcome"] == "complete"


def test_bytes_are_stored_before_rows_name_them_or_not_at_all(machine: Machine, site: Site) -> None:
    study_id, lease = running(site)
    content = resume_file(lease.job)
    wrong = artifact("resume", content, sha256="0" * 64)
    assert [why for why, _ in machine.why_not(lease, wrong)] == ["conflict"]
    assert [why for why, _ in machine.why_not(lease, artifact("secrets", b"x"))] == ["conflict"]
    assert list(site.store.digests()) == []
    assert machine.why_not(lease, artifact("resume", content), artifact("resume", content)) == []
    assert len(list(site.store.digests())) == 1
    path = f"/v1/agents/{machine.id}/attempts/{lease.attempt}/artifacts/resume"
    got = machine.client.get(path, headers={"Lease-Token": lease.token})
    assert got.content == content
    for token in ("another", ""):
        answer = machine.client.get(path, headers={"Lease-Token": token})
        assert answer.status_code == 409, token
    assert [why for why, _ in machine.why_not(lease, artifact("checkpoint", b"junk"))] == [
        "invalid"
    ]
    assert attempt_state(site, lease) == (AttemptState.ENDED, AttemptCause.IMPOSSIBLE)
    with site.database.read() as session:
        assert Studies(session).get(study_id).ending is None


def test_a_beat_keeps_a_lease_and_counts_the_time_on_the_device(
    machine: Machine, site: Site
) -> None:
    study_id, lease = running(site)
    with site.database.write() as session:
        Attempts(session).renew(lease.attempt, until=now() - timedelta(hours=1))
    assert machine.speak(lease, beat=7200.0)["refused"] == []
    with site.database.read() as session:
        kept = Attempts(session).get(lease.attempt)
        counted = Attempts(session).device_seconds(study_id, now())
    assert kept.lease_until > now()
    assert counted == 7200.0
    said = machine.speak(lease, beat=1e9)
    assert [one["why"] for one in said["refused"]] == ["invalid"]
    assert attempt_state(site, lease) == (AttemptState.ENDED, AttemptCause.IMPOSSIBLE)
    assert [one["why"] for one in machine.speak(lease, beat=1.0)["refused"]] == ["lease"]


def test_an_attempt_hears_that_it_is_to_stop_with_its_epoch_or_its_beat(
    machine: Machine, site: Site
) -> None:
    study_id, lease = running(site)
    assert machine.speak(lease, epoch(1))["stop"] == {}
    with site.database.write() as session:
        Studies(session).set_ending(study_id, StudyCause.CANCELLED, "somebody")
    told = {lease.attempt: "cancelled by somebody"}
    assert machine.speak(lease, beat=1.0)["stop"] == told
    assert machine.speak(lease, epoch(2))["stop"] == told


def test_a_full_tenant_has_an_attempts_later_words_said_again_and_no_other_ones(
    client: TestClient, machine: Machine, site: Site
) -> None:
    (_, full), (study_id, free) = running(site), running(site)
    with site.database.write() as session:
        Quotas(session).override(LOCAL, {"stored_bytes": 1})
    machine.speak(full, artifact("resume", resume_file(full.job)))
    words = [{"attempt": full.attempt, **epoch(1)}, *stored(full)[:1], {**epoch(2)}]
    contents = [word.pop("content") for word in words if "content" in word]
    items = [{"attempt": full.attempt, **word} for word in words]
    items.append({"attempt": free.attempt, **epoch(1)})
    tokens = {lease.attempt: lease.token for lease in (full, free)}
    said = machine.say(*items, contents=contents, tokens=tokens).json()
    assert [(one["item"], one["why"]) for one in said["refused"]] == [(1, "full")]
    assert events(site, study_id, "epoch") == 1
    with site.database.write() as session:
        Quotas(session).override(LOCAL, {"stored_bytes": None})
    assert machine.why_not(full, *stored(full), epoch(2), end()) == []


def test_a_measurement_counts_once(machine: Machine, site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    with site.database.read() as session:
        trial = Trials(session).get(study.id, 0)
    job = measure_models_job(StudySpec.model_validate(study.spec), [trial], device=DEVICE)
    lease = site.attempt(study, job, number=0)
    report = measurement(job, job.shapes[0], speed=1000.0, ratio=0.5)
    for _ in range(2):
        assert machine.why_not(lease, reported(report)) == []
    assert events(site, study.id, "measurement") == 1
    with site.database.read() as session:
        assert len(Measurements(session).of_study(study.id)) == 1
    assert [why for why, _ in machine.why_not(lease, epoch(1))] == ["conflict"]


def test_a_log_is_taken_with_its_token_for_a_while_after_the_end_and_shown(
    client: TestClient, machine: Machine, site: Site
) -> None:
    study_id, lease = running(site)
    shown = f"/v1/studies/{study_id}/trials/0/log"
    assert client.get(shown).status_code == 404
    assert machine.why_not(lease, log(b"one\n")) == []
    with site.database.write() as session:
        Attempts(session).end(lease.attempt, state=AttemptState.LOST, at=now())
    assert machine.why_not(lease, log(b"one\ntwo\n")) == []
    assert client.get(shown).text == "one\ntwo\n"
    part = client.get(shown, headers={"Range": "bytes=4-"})
    assert (part.status_code, part.text) == (206, "two\n")
    assert machine.why_not(lease, log(b"three\n", cut=8)) == []
    whole = client.get(shown)
    assert whole.text == "[8 bytes before this were not kept here]\nthree\n"
    assert (whole.headers["Log-Attempt"], whole.headers["Log-Start"]) == ("1", "8")
    assert len(list(site.settings.artifacts_dir.rglob("*"))) < 8
    study_id, late = running(site)
    with site.database.write() as session:
        long_ago = now() - timedelta(hours=1)
        Attempts(session).end(late.attempt, state=AttemptState.LOST, at=long_ago)
    assert [why for why, _ in machine.why_not(late, log(b"late"))] == ["lease"]


def test_a_range_of_a_log_counts_what_was_not_kept_and_what_was_written(
    client: TestClient, machine: Machine, site: Site
) -> None:
    study_id, lease = running(site)
    shown = f"/v1/studies/{study_id}/trials/0/log"
    event = '{"time": "1", "level": "INFO", "logger": "a", "message": "two"}\n'
    assert machine.why_not(lease, log(event.encode() + b"three\n", cut=8)) == []
    size = 8 + len(event) + 6
    assert client.get(shown).text.endswith("here]\n1 INFO a: two\nthree\n")
    for asked, start, text in (
        (0, 8, f"{event}three\n"),
        (8, 8, f"{event}three\n"),
        (size - 4, size - 4, "ree\n"),
    ):
        part = client.get(shown, headers={"Range": f"bytes={asked}-"})
        assert (part.status_code, part.text) == (206, text)
        assert part.headers["Log-Start"] == str(start)
        assert part.headers["Content-Range"] == f"bytes {start}-{size - 1}/{size}"
    for asked in (f"{size}-", "0-7"):
        assert client.get(shown, headers={"Range": f"bytes={asked}"}).status_code == 416
