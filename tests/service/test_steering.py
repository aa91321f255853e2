"""Steering studies over HTTP: hold them, let them go on."""

import signal
import time
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import httpx2
import psutil
import pytest

from tests.service.running import Server, wait_until

SMALL: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank_diagonal"],
    "space": {"hidden_size": {"low": 8, "high": 24}, "batch_size": 32},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "seed": 5,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[Server]:
    """One server for all tests; studies do not see each other."""
    running = Server(tmp_path_factory.mktemp("steering") / "data")
    yield running.start()
    running.close()


def ask(server: Server, study_id: str, word: str) -> dict[str, Any]:
    answer = server.http.post(f"/v1/studies/{study_id}/{word}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def kill_coordinator(server: Server) -> None:
    """`kill -9` of the coordinator, and a wait for the next one."""
    for process in server.processes():
        with suppress(psutil.NoSuchProcess):
            if "coordinator" in process.cmdline():
                process.send_signal(signal.SIGKILL)
                process.wait(10)

    def ready() -> bool:
        with suppress(httpx2.TransportError):
            return server.http.get("/readyz").status_code == 200
        return False

    wait_until(ready, what="the next coordinator")


def reach(server: Server, study_id: str, epochs: int) -> None:
    wait_until(
        lambda: server.study(study_id)["progress"]["epochs_trained"] >= epochs,
        what=f"{epochs} epochs",
    )


def at_work(server: Server, study_id: str) -> bool:
    attempts = [row for trial in server.trials(study_id) for row in trial["attempts"]]
    return any(attempt["state"] == "running" for attempt in attempts)


def numbers(server: Server, study_id: str) -> list[Any]:
    """All that a trial's numbers are, its learning curve included."""
    return [
        (
            trial["number"],
            trial["outcome"],
            trial["hyperparameters"],
            trial["values"]["quality"],
            trial["test_quality"],
            [(row["epoch"], row["train_loss"]) for row in server.curve(study_id, trial["number"])],
        )
        for trial in server.trials(study_id)
    ]


@pytest.mark.parametrize("killed", [False, True])
def test_a_paused_study_has_the_numbers_of_one_that_was_never_held(
    server: Server, killed: bool
) -> None:
    spec = {**SMALL, "budget": {"trials": 3, "epochs": 24}}
    unbroken = server.wait(server.submit(spec))
    held = server.submit(spec)
    for epochs in (10, 40):
        reach(server, held, epochs)
        for _ in range(2):
            paused = ask(server, held, "pause")
            assert (paused["state"], paused["state_reason"]) == (
                "paused",
                "paused by the local user",
            )
        if killed:
            kill_coordinator(server)
        wait_until(lambda: not at_work(server, held), what="the attempts' end")
        before = server.study(held)["progress"]
        time.sleep(1.5)
        after = server.study(held)["progress"]
        assert after == before, "something happened in a paused study"
        for _ in range(2):
            assert ask(server, held, "resume")["state"] == "running"
    ended = server.wait(held)
    assert ended["state"] == "finished"
    assert numbers(server, held) == numbers(server, unbroken["id"])
    reasons = {attempt["reason"] for trial in server.trials(held) for attempt in trial["attempts"]}
    assert reasons & {"the study was paused", "the server was stopped"}


def test_pauses_use_up_no_attempts_of_a_trial(server: Server) -> None:
    """A trial is tried three times; four pauses leave it all three."""
    study_id = server.submit({**SMALL, "budget": {"trials": 1, "epochs": 60}})
    for epochs in (5, 15, 25, 35):
        reach(server, study_id, epochs)
        ask(server, study_id, "pause")
        # Resumed at once, before the worker has ended.
        ask(server, study_id, "resume")
        wait_until(lambda: server.study(study_id)["state"] == "running", what="going on")
    assert server.wait(study_id)["state"] == "finished"
    assert [trial["outcome"] for trial in server.trials(study_id)] == ["complete"]


def test_a_study_is_paused_before_it_began_and_cancelled_while_paused(server: Server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 5000}})
    assert ask(server, study_id, "pause")["state"] == "paused"
    time.sleep(1.5)
    assert server.study(study_id)["progress"]["epochs_trained"] == 0
    assert ask(server, study_id, "resume")["state"] in ("queued", "running")
    reach(server, study_id, 5)
    ask(server, study_id, "pause")
    ask(server, study_id, "cancel")
    assert server.wait(study_id)["state"] == "cancelled"
    assert {trial["outcome"] for trial in server.trials(study_id)} == {"cancelled"}
    for word in ("pause", "resume"):
        assert ask(server, study_id, word)["state"] == "cancelled"


def test_there_is_no_pausing_what_is_not_there(server: Server) -> None:
    for word in ("pause", "resume"):
        assert server.http.post(f"/v1/studies/nothing/{word}").status_code == 404
