"""Trials that end early: the verdict that a worker hears, and what a user is told."""

import math
import signal
from contextlib import suppress
from typing import Any

import numpy as np
import psutil
import pytest
from starlette.testclient import TestClient

from search.stopping import Curve, Decision, Standings
from search.studies.spec import StudySpec
from storage.records import MetricRecord, StudyRecord, TrialOrigin, TrialOutcome, TrialState
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.service.machines import Machine, say
from tests.service.machines import epoch as epoch_word
from tests.service.running import Server, wait_until
from tests.service.site import SMALL_SPEC, Lease, Site, now

EPOCHS = 4
FIXED = {
    "kind": "pareto_gain",
    "threshold": {"kind": "fixed", "share": 0.01},
    "startup_trials": 3,
    "never_stopped": 0,
}
RUNNING_TRIAL = 6


class Curves:
    """A study whose first six trials are complete, with curves drawn by a seed."""

    def __init__(self, site: Site, seed: int, **changes: Any) -> None:
        self.site, self.seed = site, seed
        random = np.random.default_rng(seed)
        self.spec_changes = {"budget": {"trials": 20, "epochs": EPOCHS}, "early_stopping": FIXED}
        self.study = site.study(**{**self.spec_changes, **changes})
        site.run(self.study)
        with site.database.write() as session:
            Studies(session).set_prepared(self.study.id, {"validation": 400})
            point = {"quality": 0.1, "parameters": 5000.0, "throughput": 1.0}
            Studies(session).set_reference_point(self.study.id, point)
        self.values = {
            number: np.sort(random.uniform(0.2, 0.99, EPOCHS)).round(4).tolist()
            for number in range(RUNNING_TRIAL)
        }
        self.costs = {
            number: (int(random.integers(100, 4000)), float(random.integers(1000, 9000)))
            for number in range(RUNNING_TRIAL + 3)
        }
        for number, values in self.values.items():
            self.complete(number, values)

    def complete(self, number: int, values: list[float]) -> None:
        self.begin(number)
        self.train(number, values)
        with self.site.database.write() as session:
            Trials(session).end(
                self.study.id,
                number,
                state=TrialState.COMPLETE,
                at=now(),
                outcome=TrialOutcome(quality=max(values)),
            )

    def begin(self, number: int) -> None:
        parameters, throughput = self.costs[number]
        self.site.trial(
            self.study,
            number,
            state=TrialState.RUNNING,
            parameters=parameters,
            throughput=throughput,
        )

    def train(self, number: int, values: list[float]) -> None:
        with self.site.database.write() as session:
            for epoch, value in enumerate(values, start=1):
                Metrics(session).put(self.study.id, number, metric(epoch, value))

    def by_hand(self, number: int, values: list[float]) -> Decision:
        """What the rule says of the curves here, in decades that are computed here."""

        def curve(number: int, values: list[float], *, is_finished: bool) -> Curve:
            parameters, throughput = self.costs[number]
            errors = np.minimum.accumulate([math.log10(max(1 - v, 1 / 400)) for v in values])
            costs = (math.log10(parameters), -math.log10(throughput))
            return Curve(number=number, errors=tuple(errors), costs=costs, is_finished=is_finished)

        curves = {n: curve(n, v, is_finished=True) for n, v in self.values.items()}
        curves[number] = curve(number, values, is_finished=False)
        slowest = min(self.costs[n][1] for n in curves)
        reference = (math.log10(0.9), math.log10(5000), -math.log10(slowest / 2))
        rule = StudySpec.model_validate(self.study.spec).early_stopping
        assert rule is not None
        standings = Standings(curves, reference, epochs=EPOCHS, seed=SMALL_SPEC["seed"])
        return rule.decide(standings, number, len(values))


def metric(epoch: int, value: float) -> MetricRecord:
    return MetricRecord(
        epoch=epoch,
        train_loss=1.0,
        validation=value,
        spectral_margin=None,
        gradient_first=None,
        gradient_last=None,
        recovered_batches=0,
        seconds=0.1,
        attempt=1,
    )


def report(client: TestClient, lease: Lease, epoch: int, value: float) -> dict[str, Any]:
    """Report an epoch; the verdict, and why."""
    told = Machine(client).speak(lease, epoch_word(epoch, validation=value))
    assert told["refused"] == []
    reason = told["stop"].get(lease.attempt)
    return {"verdict": "continue" if reason is None else "stop", "reason": reason}


def stop(client: TestClient, lease: Lease, *, epochs: int, reason: str = "stopped") -> None:
    body = {
        "outcome": "stopped",
        "reason": reason,
        "quality": 0.3,
        "test_quality": 0.25,
        "best_epoch": 1,
        "epochs_trained": epochs,
    }
    assert say(client, lease, "end", body) == []


def trial_of(client: TestClient, study: StudyRecord, number: int = RUNNING_TRIAL) -> dict[str, Any]:
    return client.get(f"/v1/studies/{study.id}/trials/{number}").json()


def test_verdicts_are_those_of_the_rule_on_the_tables(client: TestClient, site: Site) -> None:
    outcomes: set[bool] = set()
    for seed in range(6):
        for value in (0.15, 0.9):
            curves = Curves(site, seed)
            curves.begin(RUNNING_TRIAL)
            expected = curves.by_hand(RUNNING_TRIAL, [value])
            verdict = report(client, site.lease(curves.study, RUNNING_TRIAL), 1, value)
            assert (verdict["verdict"] == "stop") == expected.stop
            stopping = trial_of(client, curves.study)["stopping"]
            if expected.stop:
                assert verdict["reason"] == f"pareto_gain at epoch 1: {expected.why}"
                assert stopping["gain"] == pytest.approx(expected.gain)
                assert stopping["threshold"] == pytest.approx(expected.threshold)
                assert (stopping["rule"], stopping["epoch"]) == ("pareto_gain", 1)
                assert stopping["before"] == list(expected.better)
            else:
                assert stopping is None
            outcomes.add(expected.stop)
    assert outcomes == {True, False}


def dominated(site: Site, **changes: Any) -> Curves:
    """A trial that is slower and larger than six good ones."""
    curves = Curves(site, 0, **changes)
    curves.costs[RUNNING_TRIAL] = (4500, 500.0)
    curves.begin(RUNNING_TRIAL)
    return curves


def test_a_worker_that_comes_back_hears_the_same_and_the_trial_says_why(
    client: TestClient, site: Site
) -> None:
    study = dominated(site).study
    first = report(client, site.lease(study, RUNNING_TRIAL), 1, 0.3)
    assert first["verdict"] == "stop"
    again = site.lease(study, RUNNING_TRIAL, attempt=2)
    assert report(client, again, 1, 0.3)["reason"] == first["reason"]
    assert report(client, again, 2, 0.99)["reason"] == first["reason"]
    stop(client, again, epochs=2, reason="budget")
    trial = trial_of(client, study)
    assert (trial["outcome"], trial["reason"]) == ("stopped", first["reason"])
    assert trial["reason"].startswith("pareto_gain at epoch 1: could add 0 of ")


def test_what_went_on_once_goes_on_when_it_is_told_again(client: TestClient, site: Site) -> None:
    curves = Curves(site, 0)
    curves.costs[RUNNING_TRIAL] = (110, 8000.0)
    curves.begin(RUNNING_TRIAL)
    assert report(client, site.lease(curves.study, RUNNING_TRIAL), 1, 0.5)["verdict"] == "continue"
    curves.costs[RUNNING_TRIAL + 1] = (100, 9500.0)
    curves.complete(RUNNING_TRIAL + 1, [0.99, 0.99, 0.99, 0.99])
    again = site.lease(curves.study, RUNNING_TRIAL, attempt=2)
    assert report(client, again, 1, 0.5)["verdict"] == "continue"
    # The next rung is judged by what is known then.
    assert report(client, again, 2, 0.5)["verdict"] == "stop"


def test_an_attempt_that_begins_anew_is_stopped_where_it_was(
    client: TestClient, site: Site
) -> None:
    study = dominated(site, early_stopping={**FIXED, "min_epochs": 2}).study
    lease = site.lease(study, RUNNING_TRIAL)
    assert report(client, lease, 1, 0.3)["verdict"] == "continue"
    assert report(client, lease, 2, 0.3)["verdict"] == "stop"
    again = site.lease(study, RUNNING_TRIAL, attempt=2)
    assert report(client, again, 1, 0.3)["verdict"] == "continue"
    assert report(client, again, 2, 0.3)["verdict"] == "stop"


def test_the_last_epoch_stops_nothing(client: TestClient, site: Site) -> None:
    study = dominated(site, early_stopping={**FIXED, "min_epochs": 3}).study
    lease = site.lease(study, RUNNING_TRIAL)
    for epoch, verdict in ((1, "continue"), (2, "continue"), (3, "stop")):
        assert report(client, lease, epoch, 0.3)["verdict"] == verdict
    other = dominated(site, early_stopping={**FIXED, "min_epochs": 2, "spacing": 2}).study
    lease = site.lease(other, RUNNING_TRIAL)
    # The rule's next rung would be epoch 4, the last; epoch 2 was sent by an attempt before it.
    with site.database.write() as session:
        Metrics(session).put(other.id, RUNNING_TRIAL, metric(2, 0.3))
    for epoch in (1, 2, 3, 4):
        assert report(client, lease, epoch, 0.3)["verdict"] == "continue"


def test_confirmations_are_trained_to_their_end(client: TestClient, site: Site) -> None:
    study = dominated(site).study
    with site.database.write() as session:
        record = Trials(session).get(study.id, RUNNING_TRIAL)
        values = {**vars(record), "number": RUNNING_TRIAL + 1, "origin": TrialOrigin.CONFIRMATION}
        values.pop("artifacts")
        Trials(session).add(type(record)(**values))
    lease = site.lease(study, RUNNING_TRIAL + 1)
    assert report(client, lease, 1, 0.3)["verdict"] == "continue"
    assert report(client, site.lease(study, RUNNING_TRIAL), 1, 0.3)["verdict"] == "stop"


def test_studies_without_a_rule_stop_nothing(client: TestClient, site: Site) -> None:
    study = dominated(site, early_stopping=None).study
    assert report(client, site.lease(study, RUNNING_TRIAL), 1, 0.1)["verdict"] == "continue"


@pytest.mark.parametrize(("at_least", "verdict"), [(0.2, "stop"), (0.999, "continue")])
def test_outside_the_region_nothing_is_added_once_a_trial_lies_inside(
    client: TestClient, site: Site, at_least: float, verdict: str
) -> None:
    bounds = {
        "quality": {"at_least": at_least},
        "parameters": {"at_most": 4000},
        "throughput": {},
    }
    curves = Curves(site, 0, objectives=bounds)
    with site.database.write() as session:
        point = {"quality": at_least, "parameters": 4000.0, "throughput": 1.0}
        Studies(session).set_reference_point(curves.study.id, point)
    # Too large to interest, and otherwise better than all others.
    curves.costs[RUNNING_TRIAL] = (4500, 9500.0)
    curves.begin(RUNNING_TRIAL)
    told = report(client, site.lease(curves.study, RUNNING_TRIAL), 1, 0.99)
    assert told["verdict"] == verdict
    if verdict == "stop":
        assert told["reason"].startswith("pareto_gain at epoch 1: could add 0 of ")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"objectives": ["parameters"]}, ("pareto_gain", "quality", "parameters")),
        ({"budget": {"epochs": 2}, "early_stopping": {"kind": "mo_asha", "min_epochs": 2}}, ("2",)),
        ({"early_stopping": {"kind": "median"}}, ("median", "pareto_gain", "mo_asha")),
    ],
)
def test_rules_that_could_not_work_are_refused(
    client: TestClient, changes: dict[str, Any], words: tuple[str, ...]
) -> None:
    spec = {**SMALL_SPEC, "early_stopping": {"kind": "pareto_gain"}, **changes}
    answer = client.post("/v1/studies", json=spec)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert error["path"].startswith("early_stopping")
    for word in words:
        assert word in error["message"]


REAL = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {
        "hidden_size": {"low": 8, "high": 24},
        "training.learning_rate": {"low": 1e-4, "high": 3e-2, "log": True},
    },
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 14, "epochs": 6},
    "sampler": {"kind": "tpe", "startup_trials": 5},
    "early_stopping": {"kind": "pareto_gain", "startup_trials": 3},
    "seed": 4,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    running = Server(tmp_path_factory.mktemp("early-stopping") / "data", workers=1)
    yield running.start()
    running.close()


@pytest.fixture(scope="module")
def study(server: Server) -> dict[str, Any]:
    return server.wait(server.submit(REAL))


def test_a_study_stops_some_trials_and_its_front_is_of_the_complete(
    server: Server, study: dict[str, Any]
) -> None:
    trials = server.trials(study["id"])
    outcomes = [trial["outcome"] for trial in trials]
    assert study["state"] == "finished"
    assert set(outcomes) == {"complete", "stopped"}
    assert study["progress"]["trials"]["stopped"] == outcomes.count("stopped") >= 4
    for trial in trials:
        curve = server.curve(study["id"], trial["number"])
        if trial["outcome"] == "complete":
            assert trial["reason"] is trial["stopping"] is None
            continue
        stopping = trial["stopping"]
        assert trial["reason"] == stopping["reason"]
        assert trial["reason"].startswith(f"pareto_gain at epoch {stopping['epoch']}: ")
        assert len(curve) == stopping["epoch"] in (1, 2, 4)
        assert trial["values"]["quality"] == max(row["validation"] for row in curve)
        assert trial["links"]["checkpoint"] is not None
    complete = {trial["number"] for trial in trials if trial["outcome"] == "complete"}
    front = {point["trial"] for point in server.get(f"/v1/studies/{study['id']}/front")["points"]}
    assert front
    assert front <= complete
    spent = study["progress"]["epochs_trained"]
    assert spent < 6 * len(trials)


@pytest.mark.slow
def test_killed_workers_change_no_decision(server: Server, study: dict[str, Any]) -> None:
    broken = server.submit(REAL)
    for _ in range(3):
        seen = server.study(broken)["progress"]["epochs_trained"]
        wait_until(
            lambda seen=seen: server.study(broken)["progress"]["epochs_trained"] > seen + 6,
            what="some epochs",
        )
        for worker in server.workers_at_work()[:1]:
            with suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGKILL)
    server.wait(broken)
    killed, unbroken = server.trials(broken), server.trials(study["id"])
    assert sum(len(trial["attempts"]) for trial in killed) > sum(
        len(trial["attempts"]) for trial in unbroken
    ), "no attempt was killed in time"
    for mine, reference in zip(killed, unbroken, strict=True):
        for name in ("outcome", "reason", "hyperparameters", "stopping"):
            assert mine[name] == reference[name]
        assert mine["values"]["quality"] == reference["values"]["quality"]
