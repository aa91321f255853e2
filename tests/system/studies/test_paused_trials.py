"""Trials that pause and go on: what their attempts hear, what users see, and what faults cost."""

import json
import re
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import optuna
import pytest
from starlette.testclient import TestClient

from search.training.jobs import TrainJob
from storage.records import AttemptKind, TrialOrigin, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempts import Attempts
from storage.repositories.trials import Trials
from tests.search.coordinating import Site as CoordinatedSite
from tests.search.coordinating import finish
from tests.service.machines import Machine, epoch
from tests.service.running import Server, wait_until
from tests.service.site import Lease, Site

EPOCHS = 8
SAMPLER = {"kind": "freeze_thaw", "startup_trials": 3}
NUMBER = 0


class Running:
    """A trial that was chosen to train to epoch 2, with limits at epochs 2 and 4."""

    def __init__(self, client: TestClient, site: Site) -> None:
        self.client, self.site = client, site
        self.study = site.study(budget={"trials": 20, "epochs": EPOCHS}, sampler=SAMPLER)
        site.run(self.study)
        site.trial(self.study, NUMBER, state=TrialState.RUNNING)
        self.choose()

    def choose(self, *limits: tuple[int, float]) -> None:
        stretch = {
            "decision": 4,
            "number": 1,
            "from": 0,
            "until": 2,
            "index": 0.25,
            "price": 2.0,
            # Log errors of an accuracy of 0.5 and of 0.7.
            "limits": [[*one] for one in limits] or [[2, -0.6931], [4, -1.2039]],
        }
        with self.site.database.write() as session:
            Trials(session).set_stretches(self.study.id, {NUMBER: stretch})

    def lease(self, attempt: int = 1) -> Lease[TrainJob]:
        return self.site.lease(self.study, NUMBER, attempt=attempt)

    def report(self, lease: Lease[TrainJob], number: int, value: float) -> dict[str, Any]:
        word = epoch(number, validation=value)
        return Machine(self.client).speak(lease, word)

    @property
    def trial(self) -> dict[str, Any]:
        return self.client.get(f"/v1/studies/{self.study.id}/trials/{NUMBER}").json()


def test_a_trial_pauses_where_its_error_is_above_the_limit(client: TestClient, site: Site) -> None:
    running = Running(client, site)
    lease = running.lease()
    assert running.report(lease, 1, 0.3)["pause"] == {}
    heard = running.report(lease, 2, 0.4)
    assert heard["stop"] == {}
    (reason,) = heard["pause"].values()
    assert reason == (
        "paused at epoch 2: another trial promises more, as its log error is -0.511, above -0.693"
    )
    # Whoever says it again hears the same, also the attempt that comes after a lost one.
    assert running.report(lease, 2, 0.4)["pause"] == heard["pause"]
    again = running.lease(attempt=2)
    assert list(running.report(again, 2, 0.4)["pause"].values()) == [reason]


def test_a_trial_goes_on_up_to_its_limit_and_is_judged_at_the_next(
    client: TestClient, site: Site
) -> None:
    running = Running(client, site)
    lease = running.lease()
    for number, value in ((1, 0.3), (2, 0.5001), (3, 0.2)):
        assert running.report(lease, number, value)["pause"] == {}
    # The best epoch so far is what counts.
    assert running.report(lease, 4, 0.6)["pause"] != {}
    assert running.trial["pausing"]["epoch"] == 4


def test_limits_that_nothing_and_that_everything_keeps(client: TestClient, site: Site) -> None:
    running = Running(client, site)
    running.choose((1, 1e9), (2, -1e9))
    lease = running.lease()
    assert running.report(lease, 1, 0.0)["pause"] == {}
    (reason,) = running.report(lease, 2, 1.0)["pause"].values()
    assert reason == "paused at epoch 2: others are looked at first"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    running = Server(tmp_path_factory.mktemp("paused") / "data", workers=2)
    yield running.start()
    running.close()


SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank", "packed_rotations"],
    "space": {
        "hidden_size": {"low": 8, "high": 24},
        "training.learning_rate": {"low": 1e-4, "high": 3e-2, "log": True},
    },
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 6, "epochs": EPOCHS},
    "sampler": SAMPLER,
    "seed": 4,
}


@pytest.fixture(scope="module")
def study(server: Server) -> dict[str, Any]:
    return server.wait(server.submit(SPEC))


def test_a_study_pauses_thaws_and_ends_every_trial_once(
    server: Server, study: dict[str, Any]
) -> None:
    trials = server.trials(study["id"])
    assert (study["state"], study["state_reason"]) == ("finished", None)
    by_outcome = {one: [t for t in trials if t["outcome"] == one] for one in _OUTCOMES}
    assert sum(map(len, by_outcome.values())) == len(trials)
    complete, stopped, cancelled = by_outcome.values()
    assert len(complete) >= 2
    assert len(stopped) >= 2
    for trial in complete:
        assert trial["epochs_trained"] == EPOCHS
        assert trial["test_quality"] is not None
    for trial in stopped:
        epochs = trial["epochs_trained"]
        assert trial["reason"] == f"paused at epoch {epochs} when the search was over"
        assert epochs in (1, 2, 4)
        curve = server.curve(study["id"], trial["number"])
        assert trial["values"]["quality"] == max(row["validation"] for row in curve)
        assert trial["links"]["checkpoint"] is not None
        assert trial["stretch"]["until"] <= epochs
    for trial in cancelled:
        assert trial["reason"] == "superseded before it was trained"
        assert trial["attempts"] == []
    spent = study["progress"]["epochs_trained"]
    assert spent == sum(trial["epochs_trained"] for trial in trials)
    # What trains on two slots may exceed it by the stretches that are underway.
    assert 5 * EPOCHS <= spent <= 7 * EPOCHS
    assert study["progress"]["epochs_left"] == 0
    front = server.get(f"/v1/studies/{study['id']}/front")["points"]
    assert {point["trial"] for point in front} <= {trial["number"] for trial in complete}


_OUTCOMES = ("complete", "stopped", "cancelled")


def test_events_tell_of_every_pause_and_every_thaw(server: Server, study: dict[str, Any]) -> None:
    told = server.http.get(f"/v1/studies/{study['id']}/events").text
    paused, thawed = (
        [json.loads(data) for data in re.findall(f"event: {kind}\ndata: (.*)", told)]
        for kind in ("paused", "thawed")
    )
    attempts = {t["number"]: len(t["attempts"]) for t in server.trials(study["id"])}
    for number, count in attempts.items():
        assert sum(e["trial"] == number for e in thawed) == max(0, count - 1)
    assert paused
    for payload in paused:
        assert payload["reason"].startswith(f"paused at epoch {payload['epoch']}: ")
        assert payload["price"] >= 1
    for payload in thawed:
        assert any(
            e["trial"] == payload["trial"] and e["epoch"] == payload["epoch"] for e in paused
        )


def test_optuna_is_told_each_end_once(server: Server, study: dict[str, Any]) -> None:
    copy = optuna.load_study(
        study_name=f"study [{study['id']}]", storage=f"sqlite:///{server.data_dir / 'optuna.db'}"
    )
    states = {
        "complete": optuna.trial.TrialState.COMPLETE,
        "stopped": optuna.trial.TrialState.PRUNED,
        "cancelled": optuna.trial.TrialState.FAIL,
    }
    trials = server.trials(study["id"])
    assert [t.state for t in copy.trials] == [states[t["outcome"]] for t in trials]


def test_a_study_of_one_trial_trains_it_to_its_end(server: Server) -> None:
    study = server.wait(server.submit({**SPEC, "budget": {"trials": 1, "epochs": EPOCHS}}))
    assert study["state"] == "finished"
    trials = server.trials(study["id"])
    assert study["progress"]["epochs_trained"] == EPOCHS, trials
    trained = [trial for trial in trials if trial["outcome"] == "complete"]
    assert [trial["epochs_trained"] for trial in trained] == [EPOCHS]


def test_what_trains_beside_others_leaves_one_the_epochs_to_its_end(tmp_path: Path) -> None:
    of_one_shape = {
        "parametrizations": ["dense"],
        "space": {**SPEC["space"], "hidden_size": 16, "training.batch_size": 64},
        "objectives": ["quality"],
    }
    wide = {"budget": {"trials": 2, "epochs": EPOCHS}, "resources": {"stack": 4}}
    # On one slot: on several, what goes on by itself meanwhile may exceed the budget.
    server = Server(tmp_path / "data", workers=1)
    try:
        server.start()
        study = server.wait(server.submit({**SPEC, **of_one_shape, **wide}))
        trials = server.trials(study["id"])
    finally:
        server.close()
    assert EPOCHS in {t["epochs_trained"] for t in trials if t["outcome"] == "complete"}
    assert study["progress"]["epochs_trained"] <= 2 * EPOCHS


def test_a_stopping_rule_beside_it_is_refused(server: Server) -> None:
    answer = server.http.post(
        "/v1/studies", json={**SPEC, "early_stopping": {"kind": "pareto_gain"}}
    )
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["path"] == "early_stopping"
    assert "freeze_thaw decides itself which trials go on" in error["message"]


def _past(site: CoordinatedSite, study_id: str) -> list[tuple[Any, ...]]:
    """What a study's trials are, and what was decided of them."""
    with site.database.read() as session:
        trials = Trials(session).list(study_id)
    return [(t.number, t.state, t.drawn, t.epochs_trained, t.quality, t.stretch) for t in trials]


@pytest.fixture(scope="module")
def coordinated(tmp_path_factory: pytest.TempPathFactory) -> Generator[CoordinatedSite]:
    made = CoordinatedSite(tmp_path_factory.mktemp("one-slot"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def unbroken(coordinated: CoordinatedSite) -> str:
    study = coordinated.http.post("/v1/studies", json=SPEC).json()["id"]
    finish(coordinated, study)
    return study


@pytest.mark.slow
def test_on_one_slot_decisions_follow_from_seed_and_past(
    coordinated: CoordinatedSite, unbroken: str
) -> None:
    again = coordinated.http.post("/v1/studies", json=SPEC).json()["id"]
    finish(coordinated, again)
    assert _past(coordinated, again) == _past(coordinated, unbroken)


@pytest.mark.slow
def test_on_one_slot_decisions_are_the_same_across_restarts(
    coordinated: CoordinatedSite, unbroken: str
) -> None:
    site = coordinated
    broken = site.http.post("/v1/studies", json=SPEC).json()["id"]

    def epochs() -> int:
        return site.http.get(f"/v1/studies/{broken}").json()["progress"]["epochs_trained"]

    for least in (3, 12, 25):
        coordinator = site.coordinate("never", 0)
        wait_until(lambda least=least: epochs() >= least, what="some epochs", pause=0.02)
        coordinator.send_signal(signal.SIGKILL)
        coordinator.wait(timeout=60)
    finish(site, broken)
    assert _past(site, broken) == _past(site, unbroken)


def test_a_users_trial_has_the_paused_one_go_on_and_without_its_state_that_begins_anew(
    coordinated: CoordinatedSite,
) -> None:
    site = coordinated
    study = site.http.post("/v1/studies", json={**SPEC, "seed": 11}).json()["id"]

    def paused() -> list[int]:
        with site.database.read() as session:
            return [t.number for t in Trials(session).list(study, TrialState.PAUSED)]

    coordinator = site.coordinate("never", 0)
    wait_until(lambda: len(paused()) >= 3, what="three paused trials", pause=0.02)
    coordinator.send_signal(signal.SIGKILL)
    coordinator.wait(timeout=60)
    with site.database.write() as session:
        lost = [t.number for t in Trials(session).list(study, TrialState.PAUSED)]
        ArtifactRows(session).unlink(study, {number: ["resume"] for number in lost})
        record = Trials(session).get(study, lost[0])
    wish = {
        "architecture": record.architecture,
        "parametrization": record.parametrization,
        "hyperparameters": record.hyperparameters,
    }
    assert site.http.post(f"/v1/studies/{study}/trials", json=wish).status_code == 202
    finish(site, study)
    with site.database.read() as session:
        trials = {t.number: t for t in Trials(session).list(study)}
        (named,) = (n for n, t in trials.items() if t.origin == TrialOrigin.USER)
        of = {n: Attempts(session).of_trial(study, n, AttemptKind.TRAIN) for n in (lost[0], named)}
    # The user's trial has what the paused one came to, of which nothing was stored any more.
    assert trials[named].repeats == lost[0]
    assert trials[named].state == trials[lost[0]].state == TrialState.COMPLETE
    assert trials[named].quality == trials[lost[0]].quality
    assert len(of[lost[0]]) == 2
    assert of[named] == []
    curve = site.http.get(f"/v1/studies/{study}/trials/{lost[0]}/metrics").json()
    assert [row["epoch"] for row in curve] == list(range(1, EPOCHS + 1))
    log = site.http.get(f"/v1/studies/{study}/trials/{lost[0]}/log").text
    assert "resumed after" not in log
