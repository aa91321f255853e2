"""Commands to studies over HTTP: pause them, resume them."""

import signal
import time
from contextlib import suppress
from typing import Any

import httpx2
import optuna
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
                process.wait(100)

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


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_a_paused_study_has_the_numbers_of_one_that_was_never_held(
    server: Server, killed: bool
) -> None:
    spec = {**SMALL, "budget": {"trials": 3, "epochs": 100}}
    unbroken = server.wait(server.submit(spec))
    held = server.submit(spec)
    for epochs in (40, 160):
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
    orderly = {"the study was paused", "the server was stopped"}
    assert reasons & (orderly | {"died with its coordinator"} if killed else orderly)


@pytest.mark.slow
def test_pauses_use_up_no_attempts_of_a_trial(server: Server) -> None:
    """A trial is tried three times; four pauses leave it all three."""
    study_id = server.submit({**SMALL, "budget": {"trials": 1, "epochs": 200}})
    for epochs in (10, 30, 50, 70):
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


def change(server: Server, study_id: str, **budget: Any) -> httpx2.Response:
    return server.http.patch(f"/v1/studies/{study_id}", json={"budget": budget})


def kinds(server: Server, study_id: str) -> list[str]:
    """The kinds of the study's events, once it has ended."""
    lines = server.http.get(f"/v1/studies/{study_id}/events").text.splitlines()
    return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]


@pytest.mark.slow
def test_a_finished_study_runs_on_to_the_trials_of_a_longer_one(server: Server) -> None:
    longer = server.wait(server.submit({**SMALL, "budget": {"trials": 5, "epochs": 1}}))
    study_id = server.submit({**SMALL, "budget": {"trials": 3, "epochs": 1}})
    assert server.wait(study_id)["progress"]["trials"]["complete"] == 3
    answer = change(server, study_id, trials=5)
    assert answer.status_code == 200, answer.text
    assert answer.json()["state"] == "running"
    assert answer.json()["finished_at"] is None
    kill_coordinator(server)
    ended = server.wait(study_id)
    assert (ended["state"], ended["spec"]["budget"]["trials"]) == ("finished", 5)
    assert numbers(server, study_id) == numbers(server, longer["id"])
    assert "budget" in kinds(server, study_id)


def test_a_used_up_budget_is_raised_and_the_study_goes_on(server: Server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 50, "epochs": 4, "total_epochs": 6}})
    ended = server.wait(study_id)
    assert ended["state_reason"] == "budget: total_epochs"
    used = ended["progress"]["epochs_trained"]
    too_little = change(server, study_id, total_epochs=used - 1)
    assert too_little.status_code == 422
    assert [fault["path"] for fault in too_little.json()["errors"]] == ["budget.total_epochs"]
    assert str(used) in too_little.text
    assert change(server, study_id, total_epochs=used + 8).status_code == 200
    ended = server.wait(study_id)
    assert ended["state_reason"] == "budget: total_epochs"
    assert used + 8 <= ended["progress"]["epochs_trained"] <= used + 8 + 2 * 2


@pytest.mark.slow
def test_a_running_study_takes_its_new_budget_up(server: Server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 12}})
    reach(server, study_id, 2)
    assert change(server, study_id, trials=3, wall_seconds=1000).status_code == 200
    ended = server.wait(study_id)
    assert ended["progress"]["trials"]["complete"] == 3
    assert ended["spec"]["budget"]["wall_seconds"] == 1000
    assert (
        change(server, study_id, wall_seconds=None).json()["spec"]["budget"]["wall_seconds"] is None
    )


def test_what_a_budget_may_not_become(server: Server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 1}})
    server.wait(study_id)
    for budget, path in (
        ({"epochs": 2}, "budget.epochs"),
        ({"trials": 1}, "budget.trials"),
        ({"trials": 0}, "budget.trials"),
        ({"wall_seconds": 1e-6}, "budget.wall_seconds"),
        ({"device_hours": 1e-9}, "budget.device_hours"),
        ({"colour": 1}, "budget.colour"),
    ):
        answer = change(server, study_id, **budget)
        assert answer.status_code == 422, (budget, answer.text)
        assert [fault["path"] for fault in answer.json()["errors"]] == [path]
    assert server.study(study_id)["state"] == "finished"
    assert change(server, "nothing", trials=3).status_code == 404
    cancelled = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 5000}})
    ask(server, cancelled, "cancel")
    assert change(server, cancelled, trials=3).status_code == 409


def blobs(server: Server) -> set[str]:
    folder = server.data_dir / "artifacts"
    return {path.name for path in folder.glob("*/*") if not path.name.startswith(".")}


def optuna_names(server: Server) -> set[str]:
    return set(optuna.get_all_study_names(f"sqlite:///{server.data_dir / 'optuna.db'}"))


def test_a_deleted_study_is_gone_and_its_copy_keeps_every_file(server: Server) -> None:
    """Two equal studies share every file; the second's are gone when it is deleted too."""
    spec = {**SMALL, "seed": 77, "budget": {"trials": 2, "epochs": 1}}
    one, two = (server.wait(server.submit(spec))["id"] for _ in range(2))
    attempts = [attempt.name for attempt in (server.data_dir / "logs").glob("*.log")]
    wait_until(
        lambda: all(trial["links"]["onnx"] for trial in front(server, two)), what="the ONNX files"
    )
    files = {
        server.http.get(trial["links"][link]).headers["etag"].strip('"')
        for trial in front(server, two)
        for link in ("checkpoint", "onnx")
    }
    own = {
        server.http.get(trial["links"]["onnx"]).headers["etag"].strip('"')
        for trial in front(server, one)
    }
    assert files | own <= blobs(server)
    assert server.http.delete(f"/v1/studies/{one}").status_code == 204
    assert server.http.get(f"/v1/studies/{one}").status_code == 404
    assert server.http.get(f"/v1/studies/{one}/trials/0").status_code == 404
    assert server.http.delete(f"/v1/studies/{one}").status_code == 404
    # At once, unless the coordinator is busy.
    wait_until(lambda: f"study [{one}]" not in optuna_names(server), what="forgetting")
    assert f"study [{two}]" in optuna_names(server)
    assert len(list((server.data_dir / "logs").glob("*.log"))) < len(attempts)
    assert files <= blobs(server)
    for trial in server.trials(two):
        for link in ("checkpoint", "report"):
            assert server.http.get(trial["links"][link]).status_code == 200
    assert server.http.delete(f"/v1/studies/{two}").status_code == 204
    assert not (files | own) & blobs(server)


def front(server: Server, study_id: str) -> list[dict[str, Any]]:
    return server.get(f"/v1/studies/{study_id}/front")["points"]


def test_a_study_that_has_not_ended_is_not_deleted(server: Server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 2, "epochs": 5000}})
    reach(server, study_id, 2)
    refused = server.http.delete(f"/v1/studies/{study_id}")
    assert refused.status_code == 409
    assert "cancel it first" in refused.json()["detail"]
    ask(server, study_id, "cancel")
    server.wait(study_id)
    # Its workers may still be on their way out.
    assert server.http.delete(f"/v1/studies/{study_id}").status_code == 204
    assert server.wait(server.submit({**SMALL, "budget": {"trials": 1, "epochs": 1}}))


def test_what_is_deleted_while_no_coordinator_runs_is_forgotten_by_the_next(
    server: Server,
) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 1, "epochs": 1}})
    server.wait(study_id)
    with server.without_coordinator():
        assert server.http.delete(f"/v1/studies/{study_id}").status_code == 204
        assert f"study [{study_id}]" in optuna_names(server)
    wait_until(lambda: f"study [{study_id}]" not in optuna_names(server), what="forgetting")
