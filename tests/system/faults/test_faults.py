"""What goes wrong while a study runs: killed processes, bad numbers, bad files, used-up budgets."""

import gzip
import random
import signal
import struct
import time
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil
import pytest

from storage.engine import Database
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.exchanges import Exchanges
from storage.repositories.trials import Trials
from tests.service.running import Server, wait_until

SMALL = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank_diagonal"],
    "space": {"hidden_size": 16, "batch_size": 32},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "seed": 5,
}


# Few epochs that last, for each is told to the server: of many small batches.
SLOW = {**SMALL, "space": {"hidden_size": 16, "batch_size": 4}}


def assert_told_once(server: Server, study_id: str) -> None:
    """No trial is lost, doubled or told twice: read from the tables, not from the service."""
    database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")
    with database.read() as session:
        numbers = [trial.number for trial in Trials(session).list(study_id)]
        exchanges = Exchanges(session).list(study_id)
        assert all(trial.told_at is not None for trial in Trials(session).list(study_id))
    database.dispose()
    assert numbers == list(range(len(numbers)))
    for kind in ("ask", "tell"):
        assert sorted(row.trial for row in exchanges if row.kind == kind) == numbers


@pytest.mark.slow
def test_a_killed_worker_goes_on_from_its_checkpoint_and_equals_an_unbroken_one(server) -> None:
    """A trial whose worker is killed twice, the first time when it has stored its state.

    The reference is the same study left alone.
    """
    spec = {**SLOW, "budget": {"trials": 1, "epochs": 18}}
    unbroken = server.wait(server.submit(spec))
    broken = server.submit(spec)
    wait_until(
        lambda: has_stored_its_state(server, broken) or server.study(broken)["state"] == "finished",
        what="a stored state",
    )
    for killed in (1, 2):
        for worker in server.workers_at_work():
            with suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGKILL)
        wait_until(
            lambda killed=killed: (
                (len(server.trials(broken)[0]["attempts"]) > killed and server.workers_at_work())
                or server.study(broken)["state"] == "finished"
            ),
            what="the next attempt",
        )
    ended = server.wait(broken)
    assert ended["state"] == "finished"
    trials = server.trials(broken)
    assert len(trials[0]["attempts"]) == 3, "no attempt was killed in time"
    logs = [log.read_text() for log in (server.data_dir / "logs").glob("*.log")]
    assert any("resumed after epoch" in log for log in logs)
    for mine, reference in zip(trials, server.trials(unbroken["id"]), strict=True):
        for name in ("outcome", "hyperparameters", "test_quality"):
            assert mine[name] == reference[name]
        assert mine["values"]["quality"] == reference["values"]["quality"]
        curves = [
            [(row["epoch"], row["train_loss"], row["validation"]) for row in server.curve(*where)]
            for where in ((broken, mine["number"]), (unbroken["id"], mine["number"]))
        ]
        assert curves[0] == curves[1]
        assert [row[0] for row in curves[0]] == list(range(1, 19))
    assert_told_once(server, broken)


def has_stored_its_state(server: Server, study_id: str) -> bool:
    database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")
    with database.read() as session:
        kinds = ArtifactRows(session).of_trial(study_id, 0)
    database.dispose()
    return "resume" in kinds


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_killing_everything_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    spec = {**SMALL, "objectives": ["quality", "parameters", "throughput"]}
    spec["budget"] = {"trials": 8, "epochs": 8}
    generator = random.Random(seed)
    server = Server(tmp_path / "data").start()
    try:
        study_id = server.submit(spec)
        # Three would end a trial that runs each time: what kills its server so often is not wanted.
        for _ in range(2):
            time.sleep(generator.uniform(0.3, 3))
            server.kill_everything()
            server.start()
        ended = server.wait(study_id)
        assert ended["state"] == "finished"
        assert ended["progress"]["trials"]["complete"] == 8
        assert_told_once(server, study_id)
    finally:
        server.close()


# Of all three at once, `test_killing_everything_loses_and_doubles_nothing` tells every time.
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["coordinator", "api", "fork_server"])
def test_killing_one_process_of_the_server_loses_nothing(tmp_path: Path, victim: str) -> None:
    """The supervisor, or the coordinator for its fork server, starts it again."""
    server = Server(tmp_path / "data").start()
    try:
        study_id = server.submit({**SMALL, "budget": {"trials": 6, "epochs": 40}})
        for _ in range(2):
            seen = server.study(study_id)["progress"]["epochs_trained"]
            wait_until(
                lambda seen=seen: server.study(study_id)["progress"]["epochs_trained"] > seen + 20,
                what="some epochs",
            )
            named = [process for process in server.processes() if victim in _words(process)]
            # The fork server's children bear its name, and it comes before them.
            named[0].send_signal(signal.SIGKILL)
            wait_until(lambda: _answers(server), what="the server's answer")
        ended = server.wait(study_id)
        assert ended["state"] == "finished"
        assert ended["progress"]["trials"]["complete"] == 6
        assert_told_once(server, study_id)
    finally:
        server.close()


def _words(process: psutil.Process) -> str:
    with suppress(psutil.NoSuchProcess):
        return " ".join(process.cmdline())
    return ""


def _answers(server: Server) -> bool:
    with suppress(httpx2.TransportError):
        return server.http.get("/readyz").status_code == 200
    return False


@pytest.mark.slow
def test_a_graceful_stop_goes_on_at_the_next_start(server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 6, "epochs": 30}})
    wait_until(lambda: server.study(study_id)["progress"]["epochs_trained"] > 20, what="epochs")
    assert server.stop() == 0
    time.sleep(8)
    server.start()
    progress = server.wait(study_id)["progress"]
    assert progress["trials"]["complete"] == 6
    # Two slots; what an attempt holds while the server is away counts for nothing.
    assert progress["device_hours"] * 3600 < 2 * progress["wall_seconds"] + 4
    attempts = [attempt for trial in server.trials(study_id) for attempt in trial["attempts"]]
    lost = {attempt["reason"] for attempt in attempts if attempt["state"] == "lost"}
    assert lost == {"its machine was stopped"}, "somebody is blamed for it"
    assert_told_once(server, study_id)


def test_a_diverged_trial_is_infeasible_and_the_study_goes_on(server) -> None:
    """A ReLU network of 64 steps whose weights move by 1 per update overflows within an epoch."""
    spec = {
        **SMALL,
        "task": {"kind": "digits", "layout": "pixels"},
        "parametrizations": ["dense"],
        "space": {
            "hidden_size": 32,
            "rnn.activation": "relu",
            "learning_rate": {"options": [1e-3, 1.0]},
        },
        "budget": {"trials": 6, "epochs": 1},
    }
    ended = server.wait(server.submit(spec))
    assert ended["state"] == "finished"
    trials = server.trials(ended["id"])
    outcomes = {trial["hyperparameters"]["training.learning_rate"]: trial for trial in trials}
    assert outcomes[1e-3]["outcome"] == "complete"
    assert outcomes[1.0]["outcome"] == "infeasible"
    assert "epoch 1" in outcomes[1.0]["reason"]
    assert len(trials) == 6
    assert_told_once(server, ended["id"])


@pytest.mark.slow
def test_draws_over_the_limit_are_listed_and_cost_no_budget(server) -> None:
    spec = {
        **SMALL,
        "space": {"hidden_size": {"low": 8, "high": 64}},
        "limits": {"parameters": 3000},
        "budget": {"trials": 5, "epochs": 1},
    }
    ended = server.wait(server.submit(spec))
    trials = server.trials(ended["id"])
    refused = [trial for trial in trials if trial["outcome"] == "infeasible"]
    assert refused, "the seed draws none over the limit"
    for trial in refused:
        assert trial["attempts"] == []
        assert str(trial["values"]["parameters"]) in trial["reason"]
        assert "3000" in trial["reason"]
    counted = ended["progress"]["trials"]
    assert (counted["complete"], counted["refused"]) == (5, len(refused))
    assert all(t["values"]["parameters"] <= 3000 for t in trials if t["outcome"] == "complete")
    assert_told_once(server, ended["id"])


@pytest.mark.slow
def test_trials_under_the_least_throughput_ratio_are_refused_untrained(server) -> None:
    """A dense model is its own baseline: its ratio is 1, which is under the limit."""
    spec = {
        **SMALL,
        "parametrizations": ["dense"],
        "limits": {"min_throughput_ratio": 1.5},
        "budget": {"trials": 1, "epochs": 1},
    }
    ended = server.wait(server.submit(spec))
    assert (ended["state"], ended["state_reason"]) == ("finished", "nothing_feasible")
    trials = server.trials(ended["id"])
    assert {trial["outcome"] for trial in trials} == {"infeasible"}
    assert all("min_throughput_ratio 1.5" in trial["reason"] for trial in trials)
    assert ended["progress"]["epochs_trained"] == 0
    assert_told_once(server, ended["id"])


def test_a_study_in_which_nothing_is_feasible_says_so(server) -> None:
    """Only the very smallest of 993 sizes is allowed: 20 draws do not find it."""
    spec = {
        **SMALL,
        "parametrizations": ["dense"],
        "space": {"hidden_size": {"low": 8, "high": 1000}},
    }
    dry = server.http.post("/v1/studies", params={"dry_run": "true"}, json=spec).json()
    limits = {"parameters": dry["parameter_range"]["low"]}
    ended = server.wait(server.submit({**spec, "limits": limits, "budget": {"trials": 1}}))
    assert (ended["state"], ended["state_reason"]) == ("finished", "nothing_feasible")
    assert ended["progress"]["trials"]["infeasible"] == 20


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"wall_seconds": 4}, "wall_seconds"),
        pytest.param({"total_epochs": 25}, "total_epochs", marks=pytest.mark.slow),
        pytest.param({"device_hours": 4 / 3600}, "device_hours", marks=pytest.mark.slow),
    ],
)
def test_a_used_up_budget_stops_trials_at_their_next_epoch(server, budget, reason) -> None:
    spec = {**SMALL, "budget": {"trials": 1000, "epochs": 5000, **budget}}
    ended = server.wait(server.submit(spec))
    assert ended["state"] == "finished"
    assert reason in ended["state_reason"]
    trials = server.trials(ended["id"])
    stopped = [trial for trial in trials if trial["outcome"] == "stopped"]
    assert stopped
    assert {trial["reason"] for trial in stopped} == {"budget"}
    waiting = [trial for trial in trials if trial["outcome"] == "cancelled"]
    assert all(trial["attempts"] == [] for trial in waiting)
    if reason == "total_epochs":
        assert 25 <= ended["progress"]["epochs_trained"] <= 25 + 2 * 2
    assert_told_once(server, ended["id"])


def test_cancelling_ends_workers_at_once_and_twice_is_harmless(server) -> None:
    study_id = server.submit({**SMALL, "budget": {"trials": 50, "epochs": 5000}})
    wait_until(lambda: server.study(study_id)["progress"]["epochs_trained"], what="an epoch")
    for _ in range(2):
        assert server.http.post(f"/v1/studies/{study_id}/cancel").status_code == 200
    ended = server.wait(study_id)
    assert ended["state"] == "cancelled"
    assert {trial["outcome"] for trial in server.trials(study_id)} == {"cancelled"}
    wait_until(lambda: not server.workers_at_work(), what="the workers' end")
    again = server.http.post(f"/v1/studies/{study_id}/cancel")
    assert (again.status_code, again.json()["state"]) == (200, "cancelled")
    assert_told_once(server, study_id)


def test_a_corrupt_data_file_fails_the_study_with_its_name(tmp_path: Path) -> None:
    data = tmp_path / "mnist"
    data.mkdir()
    for name, magic, shape in (
        ("train-images-idx3-ubyte", 2051, (20, 28, 28)),
        ("train-labels-idx1-ubyte", 2049, (20,)),
        ("t10k-images-idx3-ubyte", 2051, (10, 28, 28)),
        ("t10k-labels-idx1-ubyte", 2049, (10,)),
    ):
        size = 1
        for side in shape:
            size *= side
        content = struct.pack(f">{1 + len(shape)}I", magic, *shape) + bytes(size)
        cut = 7 if name == "t10k-images-idx3-ubyte" else 0
        (data / f"{name}.gz").write_bytes(gzip.compress(content[: len(content) - cut]))
    server = Server(tmp_path / "data", environment={"REFLECTORY_DATA": str(data)}).start()
    try:
        ended = server.wait(server.submit({**SMALL, "task": {"kind": "mnist"}}))
        assert ended["state"] == "failed"
        assert "t10k-images-idx3-ubyte.gz" in ended["state_reason"]
        assert server.trials(ended["id"]) == []
    finally:
        server.close()


def test_a_wrong_spec_leaves_no_row(server) -> None:
    before = server.get("/v1/studies")["items"]
    for wrong, path in (
        ({"colour": "red"}, "colour"),
        ({"space": {"hidden_size": {"low": 9, "high": 8}}}, "space.hidden_size"),
        ({"parametrizations": ["low_rank"], "space": {"hidden_size": 8, "d": 9}}, "space.d"),
        ({"task": {"kind": "digts"}}, "task"),
        ({"limits": {"parameters": 3}}, "limits.parameters"),
        ({"architectures": ["transformer"]}, "architectures.0"),
    ):
        answer = server.http.post("/v1/studies", json={**SMALL, **wrong})
        assert answer.status_code == 422, (wrong, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"
        paths = [error["path"] for error in answer.json()["errors"]]
        assert any(found.startswith(path) for found in paths), (path, answer.json())
    assert server.get("/v1/studies")["items"] == before


def test_a_slot_that_is_not_here_fails_the_study_with_a_sentence(server) -> None:
    if psutil.LINUX and any(Path("/dev").glob("nvidia[0-9]*")):
        pytest.skip("this machine has a GPU")
    ended = server.wait(server.submit({**SMALL, "resources": {"device": "cuda"}}))
    assert ended["state"] == "failed"
    assert "'cuda'" in ended["state_reason"]


def test_a_study_cancelled_at_once_leaves_no_process(server) -> None:
    """Cancelled right after the submission: whatever runs then, the preparation included, ends."""
    study_id = server.submit({**SMALL, "budget": {"trials": 3, "epochs": 5000}})
    server.http.post(f"/v1/studies/{study_id}/cancel")
    assert server.wait(study_id)["state"] == "cancelled"
    wait_until(lambda: not server.workers_at_work(), what="the workers' end")


def test_a_study_ended_by_its_budget_has_its_front_measured(server) -> None:
    spec = {**SMALL, "objectives": ["quality"], "budget": {"trials": 50, "total_epochs": 12}}
    spec["budget"]["epochs"] = 4
    ended = server.wait(server.submit(spec))
    assert ended["state_reason"] == "budget: total_epochs"
    front = server.get(f"/v1/studies/{ended['id']}/front")["points"]
    assert front
    assert all(point["values"]["throughput"] > 0 for point in front)
