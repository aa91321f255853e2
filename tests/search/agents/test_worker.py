import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from models.architectures import Gru, Rnn
from models.checkpoint import load
from models.model import ModelSpec
from models.parametrizations import Dense, LowRank
from models.report import ParameterReport, parameter_report
from search.agents import worker
from search.agents.executors import AttemptTicket, Exit, LocalExecutor, Slot
from search.agents.lease_keeper import LeaseKeeper
from search.agents.warm_data import WarmData
from search.agents.worker import DONE, FAILED, REFUSED, TERMINATED
from search.agents.worker_client import WorkerLink
from search.measuring.measurement_lock import MeasurementLock
from search.tasks import DataSources, Digits, Mirror, Mnist, RawSamples
from search.training.jobs import (
    Completion,
    EpochReport,
    Heartbeat,
    Job,
    MeasureJob,
    MeasurementReport,
    PrepareJob,
    Progress,
    Shape,
    TrainJob,
    Verdict,
)
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.search.agents.executors.attempts import children, exits
from tests.search.attempt_api import TOKEN, AttemptApi, Said
from tests.search.mnist_files import write_mnist

SLOT = Slot("cpu-0", "cpu", "some processor", 1.0)
DIGITS = Digits()


def model(hidden_size: int = 16, activation: str = "leaky_relu") -> ModelSpec:
    architecture = Rnn.model_validate({"hidden_size": hidden_size, "activation": activation})
    return ModelSpec(
        architecture=architecture, parametrization=Dense(), signature=DIGITS.signature()
    )


def train_job(
    *,
    epochs: int = 2,
    checkpoint_seconds: float = 600.0,
    learning_rate: float = 3e-3,
    spec: ModelSpec | None = None,
) -> TrainJob:
    training = TrainingSpec(learning_rate=learning_rate)
    return TrainJob(
        task=DIGITS,
        trial=TrialSpec(model=spec or model(), training=training, seed=3),
        number=0,
        epochs=epochs,
        checkpoint_seconds=checkpoint_seconds,
    )


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    executor = LocalExecutor([SLOT], logs=tmp_path_factory.mktemp("logs"))
    yield executor
    executor.close()


Serve = Callable[[Job], AttemptApi]


@pytest.fixture
def serve() -> Iterator[Serve]:
    served: list[AttemptApi] = []

    def start(job: Job) -> AttemptApi:
        served.append(AttemptApi(job).__enter__())
        return served[-1]

    yield start
    for api in served:
        api.__exit__()


def start(
    executor: LocalExecutor,
    api: AttemptApi,
    folder: Path,
    *,
    lease_seconds: float = 60.0,
    data: Path | None = None,
) -> None:
    api.lease_seconds = lease_seconds
    executor.log_path("a1").unlink(missing_ok=True)
    ticket = ticket_of(api, folder, lease_seconds=lease_seconds, data=data)
    executor.start(ticket, SLOT)


def end(executor: LocalExecutor) -> Exit:
    (ended,) = exits(executor, 1)
    return ended


def log(executor: LocalExecutor) -> str:
    return executor.log_path("a1").read_text()


def ticket_of(
    api: AttemptApi, folder: Path, *, lease_seconds: float, data: Path | None
) -> AttemptTicket:
    return AttemptTicket(
        url=api.url,
        attempt_id="a1",
        token=TOKEN,
        lease_seconds=lease_seconds,
        device="cpu",
        data=data,
        cache=folder / "cache",
        lock_folder=folder / "lock",
        threads=1,
    )


def test_an_attempt_takes_denormals_for_zero_and_leaves_its_thread_as_it_was(
    serve: Serve, tmp_path: Path
) -> None:
    api = serve(train_job(epochs=1))
    tiny = torch.tensor([2.0**-140])
    within: list[bool] = []
    loss = Digits.loss

    def watched(_task: Digits, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        within.append(float(tiny * 0.5) == 0)
        return loss(output, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digits, "loss", watched)
        ticket = ticket_of(api, tmp_path, lease_seconds=60.0, data=None)
        assert worker.work(ticket, end=lambda: None) == DONE
    assert within
    assert all(within)
    assert float(tiny * 0.5) > 0


def test_preparing_says_what_was_found(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    api = serve(PrepareJob(task=DIGITS))
    start(executor, api, tmp_path)
    assert end(executor).returncode == DONE
    assert api.completion.outcome == "complete"
    found = api.completion.prepared
    assert found is not None
    assert found["train"] + found["validation"] + found["test"] == 1797
    assert (found["metric"], found["baseline"]) == ("accuracy", DIGITS.metric.baseline)


def test_a_damaged_data_file_is_named_and_no_crash(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    for name in ("train-images", "train-labels", "t10k-images", "t10k-labels"):
        kind = "idx3" if name.endswith("images") else "idx1"
        (tmp_path / f"{name}-{kind}-ubyte").write_bytes(b"no idx file")
    api = serve(PrepareJob(task=Mnist()))
    start(executor, api, tmp_path, data=tmp_path)
    assert end(executor).returncode == DONE
    assert api.completion.outcome == "data"
    assert "ubyte" in str(api.completion.reason)


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: ARG002
        return


def test_a_download_says_how_far_it_is(serve: Serve, tmp_path: Path) -> None:
    checksums = write_mnist(tmp_path / "served")
    files = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(QuietFiles, directory=str(tmp_path / "served"))
    )
    thread = threading.Thread(target=files.serve_forever, args=(0.01,))
    thread.start()
    mirror = Mirror(f"http://127.0.0.1:{files.server_port}/", checksums)
    job = PrepareJob(task=Mnist())
    api = serve(job)
    # In this process, since a ticket names no mirror; the keeper's thread is not needed for it.
    with (
        WorkerLink(api.url, "a1", TOKEN, lease_seconds=60.0) as link,
        MeasurementLock(tmp_path / "lock") as lock,
    ):
        sources = DataSources(cache=tmp_path / "cache", mirrors={"mnist": mirror})
        keeper = LeaseKeeper(link, stood_still_seconds=lambda: 0.0)
        attempt = worker._Attempt(link, keeper, lock, sources, "cpu", WarmData(0))
        completion = worker._prepare(job, attempt)
    files.shutdown()
    files.server_close()
    thread.join()
    assert completion.outcome == "complete"
    sizes = {name: (tmp_path / "served" / name).stat().st_size for name in checksums}
    reports = api.bodies(Progress)
    for name, size in sizes.items():
        received = [report.received for report in reports if report.file == name]
        assert received == sorted(received)
        assert received[-1] == size


def test_a_trained_trial_stores_checkpoint_and_report_before_it_is_complete(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    api = serve(train_job(epochs=3))
    start(executor, api, tmp_path)
    assert end(executor).returncode == DONE
    completion = api.completion
    assert completion.outcome == "complete"
    assert [report.epoch for report in api.epochs] == [1, 2, 3]
    curve = [report.validation for report in api.epochs]
    assert completion.quality == max(curve)
    assert completion.best_epoch == curve.index(max(curve)) + 1
    assert completion.epochs_trained == 3
    assert completion.test_quality is not None
    assert api.asked[-3:] == ["PUT artifacts/checkpoint", "PUT artifacts/report", "POST complete"]
    loaded = load(api.artifacts["checkpoint"])
    assert loaded.spec == model()
    assert int(loaded.metadata["epoch"]) == completion.best_epoch
    assert json.loads(loaded.metadata["trial"])["seed"] == 3
    report = ParameterReport.model_validate_json(api.artifacts["report"])
    assert report == parameter_report(model())
    assert report.totals.parameters == sum(p.numel() for p in loaded.module.parameters())
    assert loaded.labels == tuple("0123456789")
    samples = RawSamples.from_bytes(api.artifacts["samples"])
    assert len(samples) == 400
    with torch.no_grad():
        output = loaded.module.eval()(loaded.preprocess(samples.x))
    right = (loaded.postprocess(output).label == samples.y).double().mean()
    # All validation samples: what the files are judged by is what the trial was judged by.
    assert float(right) == pytest.approx(completion.quality, abs=1e-9)


def test_the_verdict_on_an_epoch_stops_the_trial(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    api = serve(train_job(epochs=1000))

    def verdict(said: Said) -> Verdict | None:
        stop = isinstance(said.body, EpochReport) and said.body.epoch == 2
        return Verdict(verdict="stop", reason="budget", lease_seconds=60.0) if stop else None

    api.verdict = verdict
    start(executor, api, tmp_path)
    assert end(executor).returncode == DONE
    completion = api.completion
    assert (completion.outcome, completion.reason) == ("stopped", "budget")
    assert completion.epochs_trained == 2
    assert "checkpoint" in api.artifacts


def test_the_verdict_on_a_heartbeat_stops_the_trial_at_the_end_of_its_epoch(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    api = serve(train_job(epochs=1000))

    def verdict(said: Said) -> Verdict:
        stop = isinstance(said.body, Heartbeat)
        return Verdict(verdict="stop" if stop else "continue", reason="budget", lease_seconds=3.0)

    api.verdict = verdict
    # Training stands still at its first batch until the heartbeat was answered.
    with MeasurementLock(tmp_path / "lock") as lock, lock.exclusive():
        start(executor, api, tmp_path, lease_seconds=3.0)
        api.wait_until(lambda: len(api.bodies(Heartbeat)) >= 2)
    assert end(executor).returncode == DONE
    assert (api.completion.outcome, api.completion.reason) == ("stopped", "budget")
    assert api.completion.epochs_trained == len(api.epochs) == 1


def test_an_attempt_that_was_killed_goes_on_and_ends_with_the_same_numbers(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    whole = serve(train_job(epochs=4))
    start(executor, whole, tmp_path)
    assert end(executor).returncode == DONE
    api = serve(train_job(epochs=4, checkpoint_seconds=0.0))
    # The answer to the second epoch's report never comes.
    api.fault = lambda _method, what: (
        time.sleep(600) if what == "metrics" and len(api.epochs) == 1 else None
    )
    start(executor, api, tmp_path)
    api.wait_until(lambda: api.asked.count("POST metrics") == 2)
    executor.cancel("a1", 0.0)
    assert end(executor).signal == signal.SIGKILL
    before = len(api.epochs)
    api.fault = lambda _method, _what: None
    start(executor, api, tmp_path)
    assert end(executor).returncode == DONE
    assert [report.epoch for report in api.epochs[before:]] == [2, 3, 4]

    def numbers(of: AttemptApi) -> list[tuple[int, float | None, float]]:
        return [(report.epoch, report.train_loss, report.validation) for report in of.epochs]

    assert numbers(api) == numbers(whole)
    held = [report.held_seconds or 0.0 for report in whole.epochs]
    assert held[0] > 0
    assert held == sorted(held), "the slot is held for longer and longer"
    ends = [
        completion.model_copy(update={"stood_still_seconds": 0.0, "held_seconds": None})
        for completion in (api.completion, whole.completion)
    ]
    assert ends[0] == ends[1]
    assert api.artifacts["checkpoint"] == whole.artifacts["checkpoint"]


def test_sigterm_stores_where_training_was_and_says_nothing_else(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    api = serve(train_job(epochs=100_000, checkpoint_seconds=0.1))
    start(executor, api, tmp_path)
    api.wait_until(lambda: len(api.epochs) >= 2)
    stored = api.artifacts.get("resume")
    executor.cancel("a1", 600.0)
    assert end(executor).returncode == TERMINATED
    assert api.artifacts["resume"] != stored
    assert not api.bodies(Completion)


def test_a_model_that_diverges_is_infeasible_and_says_where(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    # Steps of 1 blow every weight up, and abs lets the state grow over 8 rows without bound.
    spec = ModelSpec(
        architecture=Rnn(hidden_size=512, activation="abs"),
        parametrization=Dense(),
        signature=Digits(layout="pixels").signature(),
    )
    job = train_job(learning_rate=1.0, spec=spec)
    api = serve(job.model_copy(update={"task": Digits(layout="pixels")}))
    start(executor, api, tmp_path)
    assert end(executor).returncode == DONE
    assert api.completion.outcome == "infeasible"
    assert "epoch 1" in str(api.completion.reason)
    assert api.completion.epochs_trained == 0


def test_running_out_of_memory_is_infeasible(serve: Serve, tmp_path: Path) -> None:
    executor = LocalExecutor([SLOT], logs=tmp_path)
    try:
        first = serve(PrepareJob(task=DIGITS))
        start(executor, first, tmp_path)
        assert end(executor).returncode == DONE
        # What the fork server may have, its attempts may have: 2 GB more than it takes now.
        (server,) = (
            pid
            for pid in children(os.getpid())
            if str(tmp_path) in os.readlink(f"/proc/{pid}/fd/2")
        )
        pages = int(Path(f"/proc/{server}/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 2 * 10**9
        resource.prlimit(server, resource.RLIMIT_AS, (limit, limit))
        api = serve(train_job(spec=model(40_000)))
        start(executor, api, tmp_path)
        assert end(executor).returncode == DONE
        assert api.completion.outcome == "infeasible"
        assert str(api.completion.reason).startswith("out of memory")
    finally:
        executor.close()


def test_something_unexpected_is_a_failure_with_the_tracebacks_last_lines(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    """A model that the space would have refused: its rank is more than its matrix holds."""
    impossible = model().model_copy(update={"parametrization": LowRank(d=500)})
    api = serve(train_job(spec=impossible))
    start(executor, api, tmp_path)
    assert end(executor).returncode == FAILED
    assert api.completion.outcome == "failed"
    reason = str(api.completion.reason)
    assert reason.splitlines()[-1].startswith("models.errors.SlotError")
    assert "Traceback" in log(executor)


def test_a_state_that_is_of_no_use_to_resume_from_means_a_start_anew(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    api = serve(train_job(epochs=2))
    api.artifacts["resume"] = b"not what a worker stored"
    start(executor, api, tmp_path)
    assert end(executor).returncode == DONE
    assert (api.completion.outcome, api.completion.epochs_trained) == ("complete", 2)
    assert "starts anew" in log(executor)


def test_shapes_are_measured_in_turn_and_reported_one_by_one(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    gru = ModelSpec(
        architecture=Gru(hidden_size=32),
        parametrization=LowRank(d=4),
        signature=DIGITS.signature(),
    )
    shapes = tuple(
        Shape(trial=trial, shape_key=spec.shape_key(), model=spec)
        for trial, spec in ((4, model()), (7, gru))
    )
    api = serve(MeasureJob(shapes=shapes, batch_size=8))
    start(executor, api, tmp_path)
    assert end(executor).returncode == DONE
    reports = [(body.trial, body.shape_key) for body in api.bodies(MeasurementReport)]
    assert reports == [(4, model().shape_key()), (7, gru.shape_key())]
    assert api.completion.outcome == "complete"


def test_a_worker_without_a_compiler_says_that_alone(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    shape = Shape(trial=0, shape_key=model().shape_key(), model=model())
    api = serve(MeasureJob(shapes=(shape,), batch_size=1, runtime="c"))
    with closing(LocalExecutor([SLOT], logs=tmp_path)) as executor:
        start(executor, api, tmp_path)
        assert end(executor).returncode == FAILED
    assert api.completion.outcome == "failed"
    assert api.completion.reason == (
        "CC = 'no-such-compiler' is not found here; allowed is the name of a C compiler"
    )


def test_nothing_is_measured_while_somebody_computes(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    shape = Shape(trial=0, shape_key=model().shape_key(), model=model())
    api = serve(MeasureJob(shapes=(shape,), batch_size=8))
    with MeasurementLock(tmp_path / "lock") as lock:
        with lock.shared():
            start(executor, api, tmp_path)
            api.wait_until(lambda: "GET job" in api.asked)
            assert executor.poll(0.5) == []
            assert not api.bodies(MeasurementReport)
        assert end(executor).returncode == DONE
    assert len(api.bodies(MeasurementReport)) == 1


def test_training_stands_still_while_somebody_measures_and_says_for_how_long(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    api = serve(train_job(epochs=1))
    with MeasurementLock(tmp_path / "lock") as lock, lock.exclusive():
        start(executor, api, tmp_path)
        api.wait_until(lambda: "GET artifacts/resume" in api.asked)
        assert executor.poll(1.0) == []
        assert not api.epochs
    assert end(executor).returncode == DONE
    assert api.completion.stood_still_seconds > 0
    assert api.epochs[0].stood_still_seconds <= api.completion.stood_still_seconds


def test_heartbeats_keep_the_lease_while_nothing_else_is_said(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    api = serve(train_job(epochs=1))
    with MeasurementLock(tmp_path / "lock") as lock, lock.exclusive():
        start(executor, api, tmp_path, lease_seconds=3.0)
        api.wait_until(lambda: len(api.bodies(Heartbeat)) >= 4)
    assert end(executor).returncode == DONE
    assert api.completion.outcome == "complete"


@pytest.mark.parametrize("status", [401, 404, 409])
def test_a_worker_whose_lease_is_over_stops_without_a_word(
    executor: LocalExecutor, serve: Serve, tmp_path: Path, status: int
) -> None:
    api = serve(train_job(epochs=1000))
    api.fault = lambda _method, what: status if what == "metrics" else None
    start(executor, api, tmp_path)
    assert end(executor).returncode == REFUSED
    assert not api.said
    assert "POST complete" not in api.asked
    assert f"answered {status}: the lease is over" in log(executor)


def test_a_refused_heartbeat_stops_a_worker_in_the_middle_of_an_epoch(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    api = serve(train_job(epochs=1000, spec=model(512)))
    api.fault = lambda _method, what: 409 if what == "heartbeat" else None
    start(executor, api, tmp_path, lease_seconds=6.0)
    assert end(executor).returncode == REFUSED
    assert not api.bodies(Completion)


def test_a_worker_that_loses_its_service_kills_itself_when_the_lease_is_over(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    with AttemptApi(train_job(epochs=1_000_000)) as api:
        start(executor, api, tmp_path, lease_seconds=1.0)
        api.wait_until(lambda: len(api.epochs) >= 1)
    # Whoever notices first: the keeper with SIGKILL, or training's own next word.
    ended = end(executor)
    assert ended.signal == signal.SIGKILL or ended.returncode == REFUSED
    assert "unreachable for the lease time" in log(executor)


def test_a_worker_that_is_stuck_and_lost_its_lease_is_killed(
    executor: LocalExecutor, serve: Serve, tmp_path: Path
) -> None:
    api = serve(train_job())
    released = threading.Event()

    def stick(_method: str, what: str) -> int | None:
        if what == "heartbeat":
            return 409
        if what == "job":
            released.wait(600)
        return None

    api.fault = stick
    start(executor, api, tmp_path, lease_seconds=1.0)
    assert end(executor).signal == signal.SIGKILL
    assert "killing this process and its group" in log(executor)
    released.set()


def test_the_token_is_in_no_log(executor: LocalExecutor, serve: Serve, tmp_path: Path) -> None:
    api = serve(train_job(epochs=1))
    api.fault = lambda _method, what: 503 if api.asked.count(f"POST {what}") == 1 else None
    start(executor, api, tmp_path)
    end(executor)
    assert "trying again" in log(executor)
    assert TOKEN not in log(executor)


def test_a_fork_server_with_cuda_initialised_refuses_to_fork() -> None:
    program = "\n".join(
        [
            "import torch",
            "torch.cuda._initialized = True",
            "from search.agents.forking import fork_server",
            "fork_server.serve_attempts(None)",
        ]
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "CUDA is initialised in the fork server" in ended.stderr


def test_what_a_worker_needs_to_speak_is_imported_before_the_fork() -> None:
    program = "\n".join(
        [
            "import sys",
            "from search.agents.forking import fork_server",
            "from search.errors import WorkerRefused",
            "from search.agents.worker_client import WorkerLink",
            "fork_server.warm_up()",
            "before = set(sys.modules)",
            "try:",
            "    WorkerLink('http://127.0.0.1:9', 'a1', 'token', lease_seconds=0.0).job()",
            "except WorkerRefused:",
            "    print(*{name.partition('.')[0] for name in set(sys.modules) - before})",
        ]
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # The name lookup's own two modules are small.
    assert set(ended.stdout.split()) <= {"encodings", "stringprep"}
