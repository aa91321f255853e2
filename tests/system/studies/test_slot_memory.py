"""Trials that need more memory than there is, against a real server."""

from typing import Any

import pytest

from tests.service.running import Server, wait_until

SPEC = {
    "task": {"kind": "digits"},
    "architectures": ["gru"],
    "parametrizations": ["dense"],
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "space": {"hidden_size": {"options": [8, 16, 32768, 65536]}, "training.batch_size": 64},
    "budget": {"trials": 6, "epochs": 1},
    "seed": 1,
}
SLOT_BYTES = 1 << 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    running = Server(
        tmp_path_factory.mktemp("slot-memory") / "data",
        environment={"REFLECTORY_SLOT_MEMORY": "1GiB"},
    )
    yield running.start()
    running.close()


def dry_run(server: Server, spec: dict[str, Any]):
    return server.http.post("/v1/studies", params={"dry_run": True}, json=spec)


def test_slots_say_what_an_attempt_may_take(server: Server) -> None:
    devices = server.http.get("/v1/devices").json()["items"]
    slots = [slot for device in devices for slot in device["slots"]]
    assert [slot["memory"] for slot in slots] == [SLOT_BYTES] * len(slots)
    assert slots


def test_a_dry_run_tells_the_largest_candidate_and_the_slots(server: Server) -> None:
    memory = dry_run(server, SPEC).json()["memory"]
    assert memory["slot_bytes"] == SLOT_BYTES
    assert memory["largest_candidate"]["hyperparameters"]["gru.hidden_size"] == 65536
    # The weights alone are 51.5 GB.
    assert memory["largest_candidate"]["bytes"] > 51e9
    assert memory["smallest_candidate"]["bytes"] < SLOT_BYTES


def test_a_study_of_which_nothing_can_run_is_refused(server: Server) -> None:
    hopeless = {**SPEC, "space": {"hidden_size": 65536}}
    for answer in (dry_run(server, hopeless), server.http.post("/v1/studies", json=hopeless)):
        assert answer.status_code == 422
        (fault,) = answer.json()["errors"]
        assert fault["path"] == "space"
        assert "GB predicted, the largest slot has 1.1 GB" in fault["message"]
    assert hopeless["space"] not in [
        study["spec"]["space"] for study in server.http.get("/v1/studies").json()["items"]
    ]


def test_what_does_not_fit_ends_as_infeasible_and_the_rest_completes(server: Server) -> None:
    study = server.submit(SPEC)
    enqueued = server.http.post(
        f"/v1/studies/{study}/trials",
        json={
            "architecture": "gru",
            "parametrization": "dense",
            "hyperparameters": {"gru.hidden_size": 32768},
        },
    )
    assert enqueued.status_code in (200, 201, 202), enqueued.text
    ended = server.wait(study)
    assert ended["state"] == "finished", ended
    trials = server.trials(study)
    too_large = [trial for trial in trials if trial["outcome"] == "infeasible"]
    complete = [trial for trial in trials if trial["outcome"] == "complete"]
    assert len(complete) == SPEC["budget"]["trials"]
    assert too_large
    assert len(too_large) + len(complete) == len(trials)
    for trial in too_large:
        assert trial["hyperparameters"]["gru.hidden_size"] >= 32768
        assert trial["reason"].startswith("memory: ")
    assert all(trial["hyperparameters"]["gru.hidden_size"] <= 16 for trial in complete)


def test_a_machine_that_comes_back_with_less_ends_what_waits_and_does_not_fit(
    server: Server,
) -> None:
    """What was admitted to a larger slot is not started on a smaller one, and waits for nothing."""
    small = {**SPEC, "space": {"hidden_size": 16, "training.batch_size": 64}}
    study = server.submit({**small, "budget": {"trials": 3, "epochs": 1000}})
    wait_until(
        lambda: any(trial["outcome"] == "running" for trial in server.trials(study)),
        what="a trial that runs",
    )
    server.stop()
    shrunk = Server(server.data_dir, environment={"REFLECTORY_SLOT_MEMORY": "64MiB"}).start()
    try:
        ended = shrunk.wait(study)
        reasons = [trial["reason"] for trial in shrunk.trials(study)]
    finally:
        shrunk.close()
    assert ended["state"] == "finished", ended
    assert len(reasons) > 1
    assert all(reason.startswith("memory: ") for reason in reasons)
