"""Studies that start with what others found, over HTTP."""

import statistics
from typing import Any

import pytest

from tests.service.running import Server

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {
        "hidden_size": {"low": 8, "high": 16, "step": 8},
        "learning_rate": {"low": 1e-9, "high": 1e-1, "log": True},
        "batch_size": 32,
    },
    "objectives": ["quality"],
    "budget": {"trials": 4, "epochs": 2},
    "seed": 3,
}
PIXELS: dict[str, Any] = {"kind": "digits", "layout": "pixels"}
SAMPLERS: list[dict[str, Any]] = [
    {"kind": "tpe"},
    {"kind": "known_cost"},
    {"kind": "nsga2", "population": 6},
]


@pytest.fixture(scope="module")
def source(server: Server) -> str:
    """A finished study, of random configurations."""
    spec = {**SPEC, "sampler": {"kind": "random"}, "budget": {"trials": 16, "epochs": 2}, "seed": 8}
    return server.wait(server.submit(spec))["id"]


def mean_quality(server: Server, study_id: str) -> float:
    assert server.wait(study_id)["state"] == "finished"
    trials = server.trials(study_id)
    assert [trial["number"] for trial in trials] == list(range(4))
    return statistics.fmean(trial["values"]["quality"] for trial in trials)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", SAMPLERS, ids=lambda sampler: sampler["kind"])
def test_the_first_trials_of_a_warm_study_are_better(
    server: Server, source: str, sampler: dict[str, Any]
) -> None:
    spec = {**SPEC, "sampler": sampler}
    cold = mean_quality(server, server.submit(spec))
    warm = mean_quality(server, server.submit({**spec, "warm_start": [source]}))
    assert warm > cold + 0.05


def test_what_a_study_knows_stays_when_the_other_is_deleted(server: Server) -> None:
    many = {"budget": {"trials": 12, "epochs": 1}, "sampler": {"kind": "random"}}
    other = server.wait(server.submit({**SPEC, **many}))["id"]
    spec = {**SPEC, "sampler": {"kind": "tpe"}, "warm_start": [other]}
    dry = server.http.post("/v1/studies", params={"dry_run": "true"}, json=spec)
    assert dry.json()["known_trials"] == 12
    before = server.wait(server.submit(spec))["id"]
    after = server.submit(spec)
    server.http.post(f"/v1/studies/{after}/pause")
    assert server.http.delete(f"/v1/studies/{other}").status_code == 204
    server.http.post(f"/v1/studies/{after}/resume")
    assert server.wait(after)["state"] == "finished"
    drawn = [server.trials(study_id)[0]["hyperparameters"] for study_id in (before, after)]
    assert drawn[0] == drawn[1]
    front = server.get(f"/v1/studies/{after}/front")["points"]
    assert {point["trial"] for point in front} <= set(range(4))
    gone = server.http.post("/v1/studies", json=spec)
    assert gone.status_code == 422


def test_only_studies_that_compare_are_learnt_from(server: Server, source: str) -> None:
    def paths(**changes: Any) -> list[str]:
        for params in ({}, {"dry_run": "true"}):
            answer = server.http.post("/v1/studies", params=params, json={**SPEC, **changes})
            assert answer.status_code == 422, answer.text
        return [fault["path"] for fault in answer.json()["errors"]]

    assert paths(warm_start=[source, "nothing"]) == ["warm_start.1"]
    assert paths(warm_start=[source, source]) == ["warm_start"]
    other_task = {"task": PIXELS, "sampler": {"kind": "known_cost"}}
    assert paths(warm_start=[source], **other_task) == ["warm_start.0"]
    fast = {"objectives": ["quality", "throughput"], "throughput": {"batch_size": 7}}
    assert paths(warm_start=[source], **fast) == ["warm_start.0"]
    # Not in this space: nothing is learnt from them.
    elsewhere = {**SPEC["space"], "hidden_size": 24}
    dry = server.http.post(
        "/v1/studies",
        params={"dry_run": "true"},
        json={**SPEC, "warm_start": [source], "space": elsewhere},
    )
    assert (dry.status_code, dry.json()["known_trials"]) == (200, 0)


def test_freeze_thaw_goes_by_the_ranks_of_trials_of_another_task(
    server: Server, source: str
) -> None:
    spec = {**SPEC, "task": PIXELS, "sampler": {"kind": "freeze_thaw"}, "warm_start": [source]}
    dry = server.http.post("/v1/studies", params={"dry_run": "true"}, json=spec)
    assert dry.json()["warm_start"] == [{"study": source, "by": "ranks", "trials": 16}]
    assert dry.json()["known_trials"] == 0
    study = server.submit(spec)
    assert server.wait(study)["state"] == "finished"
    assert all(trial["number"] >= 0 for trial in server.trials(study))
    refused = server.http.post("/v1/studies", json={**spec, "sampler": {"kind": "tpe"}})
    assert refused.status_code == 422
    [fault] = refused.json()["errors"]
    assert fault["path"] == "warm_start.0"
    assert "or the sampler freeze_thaw" in fault["message"]
