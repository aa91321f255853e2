"""Throughput measured again: a further record, by the real coordinator, whatever happens to it."""

import csv
import io
import json
import signal
import zipfile
from contextlib import suppress
from dataclasses import replace
from typing import Any

import psutil
import pytest
from starlette.testclient import TestClient

from storage.records import CommandKind, StudyRecord, TrialState
from storage.repositories.commands import Commands
from storage.repositories.measurements import Measurements
from storage.repositories.trials import Trials
from tests.service.running import Server, wait_until
from tests.service.site import SMALL_SPEC, Site, now

SPEC: dict[str, Any] = {
    **SMALL_SPEC,
    "parametrizations": ["dense"],
    "space": {"hidden_size": {"options": [8, 16]}, "batch_size": 64},
    "sampler": {"kind": "random"},
    "budget": {"trials": 2, "epochs": 1},
    "duplicates": "resample",
    "throughput": {"batch_size": 8},
}


@pytest.fixture(scope="module")
def study_id(server: Server) -> str:
    """A finished study whose trials were measured."""
    study_id = server.submit(SPEC)
    assert server.wait(study_id)["state"] == "finished"
    return study_id


def ask(server: Server, study_id: str, number: int = 0) -> dict[str, Any]:
    answer = server.http.post(f"/v1/studies/{study_id}/trials/{number}/measure")
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/v1/studies/{study_id}/trials/{number}"
    return answer.json()


def trial(server: Server, study_id: str, number: int = 0) -> dict[str, Any]:
    return server.get(f"/v1/studies/{study_id}/trials/{number}")


def records(server: Server, study_id: str, count: int, number: int = 0) -> list[dict[str, Any]]:
    """The trial's records, once there are so many and no more are waited for."""

    def there() -> list[dict[str, Any]] | None:
        detail = trial(server, study_id, number)
        made: list[dict[str, Any]] = detail["measurements"]
        return made if len(made) >= count and detail["measuring"] is None else None

    return wait_until(there, what=f"{count} records; log {server.log}")


def without_links(front: dict[str, Any]) -> dict[str, Any]:
    """A front but for its files, which are still being exported after a study's end."""
    files = dict.fromkeys(("links", "bytes", "missing"))
    points = [{**point, **files} for point in front["points"]]
    return {**front, "points": points}


def test_a_finished_study_is_measured_again_and_its_front_stays(
    server: Server, study_id: str
) -> None:
    path = f"/v1/studies/{study_id}/front"
    before, state = server.get(path), server.study(study_id)
    (only,) = records(server, study_id, 1)
    assert only["used"]
    assert ask(server, study_id)["measurement"]["state"] in ("waiting", "running")
    first, second = records(server, study_id, 2)
    assert first == only
    assert (first["used"], second["used"]) == (True, False)
    assert first["device"] == second["device"]
    assert second["created_at"] > first["created_at"]
    circumstances = ("batch_size", "threads", "mode", "device")
    assert [first["record"][name] for name in circumstances] == [
        second["record"][name] for name in circumstances
    ]
    assert trial(server, study_id)["throughput"] == first
    assert trial(server, study_id)["values"]["throughput"] == first["samples_per_second"]
    assert without_links(server.get(path)) == without_links(before)
    assert before["throughput"] == "search"
    # The study itself has not moved.
    after = server.study(study_id)
    assert (after["state"], after["finished_at"]) == ("finished", state["finished_at"])
    share = "measuring_share"
    assert after["progress"][share] == state["progress"][share]


def test_the_front_shows_what_was_measured_last_when_asked(server: Server, study_id: str) -> None:
    made = len(records(server, study_id, 1))
    ask(server, study_id)
    newest = records(server, study_id, made + 1)[-1]
    path = f"/v1/studies/{study_id}/front"
    front = server.get(path, throughput="latest", objectives="quality,throughput,parameters")
    assert front["throughput"] == "latest"
    values = {point["trial"]: point["values"] for point in front["points"]}
    ratios = {point["trial"]: point["throughput_ratio"] for point in front["points"]}
    # It has the fewest parameters, so that it is on every front.
    assert values[0]["throughput"] == newest["samples_per_second"]
    assert ratios[0] == newest["ratio"]
    answer = server.http.get(path, params={"format": "csv", "throughput": "latest"})
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    shown = {int(row["trial"]): float(row["throughput"]) for row in rows}
    assert shown == {number: value["throughput"] for number, value in values.items()}
    content = server.http.get(f"/v1/studies/{study_id}/bundle?throughput=latest").content
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        bundled = json.loads(archive.read("front.json"))
    assert bundled["throughput"] == "latest"
    assert [point["trial"] for point in bundled["points"]] == list(values)
    refused = server.http.get(path, params={"throughput": "oldest"})
    assert refused.status_code == 422


def test_what_was_asked_survives_the_death_of_the_server(server: Server, study_id: str) -> None:
    made = len(records(server, study_id, 1, 1))
    ask(server, study_id, 1)
    server.kill_everything()
    server.start()
    assert len(records(server, study_id, made + 1, 1)) == made + 1


def test_a_study_that_runs_on_meanwhile_has_both(server: Server, study_id: str) -> None:
    made = len(records(server, study_id, 1))
    ask(server, study_id)
    grown = server.http.patch(f"/v1/studies/{study_id}", json={"budget": {"trials": 3}})
    assert grown.status_code == 200
    records(server, study_id, made + 1)
    study = server.wait(study_id)
    assert (study["state"], study["progress"]["trials"]["complete"]) == ("finished", 3)


def test_a_running_study_measures_what_is_complete(server: Server) -> None:
    study_id = server.submit({**SPEC, "budget": {"trials": 8, "epochs": 20}})

    def complete() -> int | None:
        done = [one["number"] for one in server.trials(study_id) if one["outcome"] == "complete"]
        return done[0] + 1 if done else None

    number = wait_until(complete, what="a complete trial") - 1
    made = len(records(server, study_id, 1, number))
    ask(server, study_id, number)
    records(server, study_id, made + 1, number)
    assert server.study(study_id)["state"] == "running"
    server.http.post(f"/v1/studies/{study_id}/cancel")
    assert server.wait(study_id)["state"] == "cancelled"


def test_a_study_that_was_never_measured_gets_its_first_record(server: Server) -> None:
    unmeasured = {**SPEC, "objectives": ["quality"], "budget": {"trials": 2, "epochs": 1}}
    study_id = server.submit({**unmeasured, "sampler": {"kind": "random"}})
    server.wait(study_id)
    worst = [one for one in server.trials(study_id) if one["values"]["throughput"] is None]
    assert worst
    ask(server, study_id, worst[0]["number"])
    (first,) = records(server, study_id, 1, worst[0]["number"])
    assert first["used"]


def test_a_deleted_study_is_measured_no_more(server: Server) -> None:
    study_id = server.submit(SPEC)
    server.wait(study_id)
    ask(server, study_id)
    assert server.http.delete(f"/v1/studies/{study_id}").status_code == 204
    assert server.http.get(f"/v1/studies/{study_id}/trials/0").status_code == 404
    # The coordinator goes on.
    assert server.wait(server.submit(SPEC))["state"] == "finished"


def test_a_model_that_cannot_be_measured_says_why_and_can_be_asked_again(
    server: Server, study_id: str
) -> None:
    made = [len(records(server, study_id, 1))]
    ask(server, study_id)

    def failed() -> dict[str, Any] | None:
        for worker in server.workers_at_work():
            with suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGSEGV)
        detail = trial(server, study_id)
        again: dict[str, Any] | None = detail["measuring"]
        if again is None:
            # It was measured before anybody killed it.
            made.append(len(detail["measurements"]))
            ask(server, study_id)
            return None
        return again if again["state"] == "failed" else None

    assert "crashed by signal" in wait_until(failed, what="a failure")["reason"]
    assert len(trial(server, study_id)["measurements"]) == made[-1]
    assert ask(server, study_id)["measurement"]["state"] != "failed"
    records(server, study_id, made[-1] + 1)


def test_asking_twice_while_one_waits_asks_once(client: TestClient, site: Site) -> None:
    """No coordinator runs here."""
    study = site.study()
    site.trial(study, 0, quality=0.5, throughput=100.0)
    site.finish(study)
    path = f"/v1/studies/{study.id}/trials/0/measure"
    first, second = client.post(path), client.post(path)
    assert (first.status_code, first.json()) == (202, second.json())
    with site.database.read() as session:
        assert len(Commands(session).open(CommandKind.MEASURE, study.id)) == 1
    assert client.delete(f"/v1/studies/{study.id}").status_code == 204
    with site.database.read() as session:
        assert Commands(session).open(CommandKind.MEASURE) == []


def remeasured(site: Site, study: StudyRecord, number: int, speed: float, device: str) -> None:
    """A further record of a trial's shape, as a worker adds it."""
    with site.database.write() as session:
        used = Trials(session).get(study.id, number).measurement_id
        record = Measurements(session).get(str(used))
        changes = {"id": f"{record.id}-{device}", "samples_per_second": speed, "ratio": speed / 100}
        later = replace(record, **changes, device=device, created_at=now())
        Measurements(session).add(study.id, later)
        Trials(session).share_throughput(study.id, later)


def test_a_newer_record_moves_the_front_only_where_it_is_asked_for(
    client: TestClient, site: Site
) -> None:
    study = site.study(objectives=["quality", "throughput"])
    site.run(study)
    site.trial(study, 0, quality=0.5, throughput=100.0)
    site.trial(study, 1, quality=0.75, throughput=50.0)
    path = f"/v1/studies/{study.id}/front"

    def front(**query: str) -> dict[int, tuple[float, float]]:
        points = client.get(path, params=query).json()["points"]
        return {
            point["trial"]: (point["values"]["throughput"], point["throughput_ratio"])
            for point in points
        }

    tag = client.get(path).headers["etag"]
    assert front() == front(throughput="latest") == {0: (100.0, 0.5), 1: (50.0, 0.5)}
    remeasured(site, study, 1, 200.0, "a test's CPU")
    # Another device says nothing about this one.
    remeasured(site, study, 0, 900.0, "another CPU")
    assert front() == {0: (100.0, 0.5), 1: (50.0, 0.5)}
    assert front(throughput="latest") == {1: (200.0, 2.0)}
    assert client.get(path).headers["etag"] != tag
    detail = client.get(f"/v1/studies/{study.id}/trials/0").json()
    devices = [(record["device"], record["used"]) for record in detail["measurements"]]
    assert devices == [("a test's CPU", True), ("another CPU", False)]


def test_only_what_is_known_to_run_is_measured(client: TestClient, site: Site) -> None:
    study = site.study()
    site.trial(study, 0, state=TrialState.INFEASIBLE, reason="9 parameters are over the limit")
    site.trial(study, 1, state=TrialState.INFEASIBLE, throughput=5.0, reason="slow")
    site.trial(study, 2, state=TrialState.QUEUED)
    site.trial(study, 3, state=TrialState.STOPPED)
    path = f"/v1/studies/{study.id}/trials"
    answers = [client.post(f"{path}/{number}/measure") for number in range(4)]
    assert [answer.status_code for answer in answers] == [409, 202, 409, 202]
    assert "trial 0" in answers[0].json()["detail"]
    assert "is infeasible and was never measured" in answers[0].json()["detail"]
    assert client.post(f"{path}/9/measure").status_code == 404
    assert client.post("/v1/studies/nothing/trials/0/measure").status_code == 404
    with site.database.read() as session:
        assert Measurements(session).first_device(study.id) == "a test's CPU"
