import json
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import torch

from models.architectures import Gru, Rnn
from models.checkpoint import load
from models.model import ModelSpec
from models.parametrizations import Dense, LowRank
from models.report import ParameterReport, parameter_report
from search.agents import worker
from search.agents.forking.unforked import Unforked
from search.agents.network_work import OpenedNetworks
from search.agents.slots.shares import Shares
from search.agents.slots.slot_frames import receive
from search.agents.slots.slot_line import SlotLine
from search.agents.worker import DONE, FAILED, TERMINATED
from search.measuring.measurement_lock import MeasurementLock
from search.tasks import DataSources, Digits, Mirror, Mnist, RawSamples
from search.training.jobs import (
    Completion,
    Job,
    MeasureJob,
    MeasurementReport,
    PrepareJob,
    Progress,
    Shape,
    TrainJob,
)
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.patience import wait_while_it_moves
from tests.search.agents.slots.harness import Heard, Slots, slots_in
from tests.search.mnist_files import write_mnist

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
def slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slots]:
    with slots_in(tmp_path_factory.mktemp("slots")) as slots:
        yield slots


@pytest.fixture
def begin(slots: Slots, tmp_path: Path) -> Callable[..., Heard]:
    """Begins a job as attempt `a1`, which keeps its files in the test's own folder."""

    def begin(job: Job, **given: Any) -> Heard:
        slots.start("a1", job, cache=tmp_path / "cache", lock_folder=tmp_path / "lock", **given)
        return slots.of("a1")

    slots.forget("a1")
    return begin


Begin = Callable[..., Heard]


@contextmanager
def in_this_thread(job: Job, folder: Path) -> Generator[Heard]:
    """A job that was done here, in the main thread, and what it said."""
    unforked = Unforked()
    slots = Slots(folder, launch=unforked.launch)

    def work() -> None:
        try:
            slots.start("a1", job)
            slots.end_of("a1")
        finally:
            slots.processes.close()

    unforked.run(work)
    yield slots.of("a1")


def test_an_attempt_takes_denormals_for_zero_and_leaves_its_thread_as_it_was(
    tmp_path: Path,
) -> None:
    tiny = torch.tensor([2.0**-140])
    within: list[bool] = []
    loss = Digits.loss

    def watched(_task: Digits, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        within.append(float(tiny * 0.5) == 0)
        return loss(output, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digits, "loss", watched)
        with in_this_thread(train_job(epochs=1), tmp_path) as heard:
            assert heard.completion.outcome == "complete"
    assert within
    assert all(within)
    assert float(tiny * 0.5) > 0


def test_preparing_says_what_was_found(slots: Slots, begin: Begin) -> None:
    heard = begin(PrepareJob(task=DIGITS))
    assert slots.end_of("a1").returncode == DONE
    assert heard.completion.outcome == "complete"
    found = heard.completion.prepared
    assert found is not None
    assert found["train"] + found["validation"] + found["test"] == 1797
    assert (found["metric"], found["baseline"]) == ("accuracy", DIGITS.metric.baseline)


def test_a_damaged_data_file_is_named_and_no_crash(
    slots: Slots, begin: Begin, tmp_path: Path
) -> None:
    for name in ("train-images", "train-labels", "t10k-images", "t10k-labels"):
        kind = "idx3" if name.endswith("images") else "idx1"
        (tmp_path / f"{name}-{kind}-ubyte").write_bytes(b"no idx file")
    heard = begin(PrepareJob(task=Mnist()), data=tmp_path)
    assert slots.end_of("a1").returncode == DONE
    assert heard.completion.outcome == "data"
    assert "ubyte" in str(heard.completion.reason)


class QuietFiles(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: ARG002
        return


def test_a_download_says_how_far_it_is(tmp_path: Path) -> None:
    checksums = write_mnist(tmp_path / "served")
    files = ThreadingHTTPServer(
        ("127.0.0.1", 0), partial(QuietFiles, directory=str(tmp_path / "served"))
    )
    thread = threading.Thread(target=files.serve_forever, args=(0.01,))
    thread.start()
    mirror = Mirror(f"http://127.0.0.1:{files.server_port}/", checksums)
    job = PrepareJob(task=Mnist())
    heard: list[Progress] = []
    ours, theirs = Pipe()
    # In this process, since a ticket names no mirror.
    with ours, MeasurementLock(tmp_path / "lock") as lock:
        line = SlotLine(theirs).begin("a1", held=Shares(), stood_still=Shares())
        assert receive(ours)[0]["kind"] == "begin"
        sources = DataSources(cache=tmp_path / "cache", mirrors={"mnist": mirror})
        attempt = worker._Attempt(line, line, lock, sources, "cpu", OpenedNetworks())
        completion = worker._prepare(job, attempt)
        while ours.poll():
            frame, _ = receive(ours)
            heard.append(Progress.model_validate_json(frame["report"]))
    files.shutdown()
    files.server_close()
    thread.join()
    assert completion.outcome == "complete"
    sizes = {name: (tmp_path / "served" / name).stat().st_size for name in checksums}
    for name, size in sizes.items():
        received = [report.received for report in heard if report.file == name]
        assert received == sorted(received)
        assert received[-1] == size


def test_a_trained_trial_stores_checkpoint_and_report_before_it_is_complete(
    slots: Slots, begin: Begin
) -> None:
    heard = begin(train_job(epochs=3))
    assert slots.end_of("a1").returncode == DONE
    completion = heard.completion
    assert completion.outcome == "complete"
    assert [report.epoch for report in heard.epochs] == [1, 2, 3]
    curve = [report.validation for report in heard.epochs]
    assert completion.quality == max(curve)
    assert completion.best_epoch == curve.index(max(curve)) + 1
    assert completion.epochs_trained == 3
    assert completion.test_quality is not None
    assert heard.words[-3:] == ["artifact checkpoint", "artifact report", "end"]
    loaded = load(heard.artifacts["checkpoint"])
    assert loaded.spec == model()
    assert int(loaded.metadata["epoch"]) == completion.best_epoch
    assert json.loads(loaded.metadata["trial"])["seed"] == 3
    report = ParameterReport.model_validate_json(heard.artifacts["report"])
    assert report == parameter_report(model())
    assert report.totals.parameters == sum(p.numel() for p in loaded.module.parameters())
    assert loaded.labels == tuple("0123456789")
    samples = RawSamples.from_bytes(heard.artifacts["samples"])
    assert len(samples) == 400
    with torch.no_grad():
        output = loaded.module.eval()(loaded.preprocess(samples.x))
    right = (loaded.postprocess(output).label == samples.y).double().mean()
    # All validation samples: what the files are judged by is what the trial was judged by.
    assert float(right) == pytest.approx(completion.quality, abs=1e-9)


def test_the_verdict_on_an_epoch_stops_the_trial(slots: Slots, begin: Begin) -> None:
    slots.of("a1").verdict = lambda report: "budget" if report.epoch == 2 else None
    heard = begin(train_job(epochs=1000))
    assert slots.end_of("a1").returncode == DONE
    completion = heard.completion
    assert (completion.outcome, completion.reason) == ("stopped", "budget")
    assert completion.epochs_trained == 2
    assert "checkpoint" in heard.artifacts


def test_a_verdict_between_epochs_stops_the_trial_at_the_end_of_its_epoch(
    slots: Slots, begin: Begin, tmp_path: Path
) -> None:
    # Training stands still at its first batch until the verdict has come.
    with MeasurementLock(tmp_path / "lock") as lock, lock.exclusive():
        heard = begin(train_job(epochs=1000))
        wait_while_it_moves(lambda: "fetch resume" in heard.words, what="the job's begin")
        slots.processes.tell("a1", {"kind": "stop", "attempt": "a1", "reason": "budget"})
        beats = len(heard.said("beat"))
        wait_while_it_moves(lambda: len(heard.said("beat")) > beats + 1, what="signs of life")
    assert slots.end_of("a1").returncode == DONE
    assert (heard.completion.outcome, heard.completion.reason) == ("stopped", "budget")
    assert heard.completion.epochs_trained == len(heard.epochs) == 1


def test_an_attempt_that_was_killed_goes_on_and_ends_with_the_same_numbers(
    slots: Slots, begin: Begin
) -> None:
    whole = begin(train_job(epochs=4))
    assert slots.end_of("a1").returncode == DONE
    heard = slots.forget("a1")
    # The answer to the second epoch's report never comes.
    heard.holds = lambda _frame: len(heard.epochs) == 2
    begin(train_job(epochs=4, checkpoint_seconds=0.0))
    wait_while_it_moves(lambda: len(heard.epochs) == 2, what="two epochs")
    # Of the first epoch: before it is killed it may store that of the second.
    resume = heard.artifacts["resume"]
    slots.processes.cancel("a1", 0.0)
    assert slots.end_of("a1").signal == signal.SIGKILL
    again = slots.forget("a1")
    again.artifacts["resume"] = resume
    begin(train_job(epochs=4, checkpoint_seconds=0.0))
    assert slots.end_of("a1").returncode == DONE
    assert [report.epoch for report in again.epochs] == [2, 3, 4]

    def numbers(*of: Heard) -> list[tuple[int, float | None, float]]:
        reports = {report.epoch: report for one in of for report in one.epochs}
        return [(one.epoch, one.train_loss, one.validation) for one in reports.values()]

    assert numbers(heard, again) == numbers(whole)
    held = [report.held_seconds or 0.0 for report in whole.epochs]
    assert held[0] > 0
    assert held == sorted(held), "the slot is held for longer and longer"
    ends = [
        completion.model_copy(update={"stood_still_seconds": 0.0, "held_seconds": None})
        for completion in (again.completion, whole.completion)
    ]
    assert ends[0] == ends[1]
    assert again.artifacts["checkpoint"] == whole.artifacts["checkpoint"]


def test_sigterm_stores_where_training_was_and_says_nothing_else(
    slots: Slots, begin: Begin
) -> None:
    heard = begin(train_job(epochs=100_000, checkpoint_seconds=0.1))
    wait_while_it_moves(lambda: len(heard.epochs) >= 2, what="epochs")
    stored = heard.artifacts.get("resume")
    slots.processes.cancel("a1", 600.0)
    assert slots.end_of("a1").returncode == TERMINATED
    assert heard.artifacts["resume"] != stored
    assert not heard.bodies(Completion)


def test_a_model_that_diverges_is_infeasible_and_says_where(slots: Slots, begin: Begin) -> None:
    # Steps of 1 blow every weight up, and abs lets the state grow over 8 rows without bound.
    spec = ModelSpec(
        architecture=Rnn(hidden_size=512, activation="abs"),
        parametrization=Dense(),
        signature=Digits(layout="pixels").signature(),
    )
    job = train_job(learning_rate=1.0, spec=spec)
    heard = begin(job.model_copy(update={"task": Digits(layout="pixels")}))
    assert slots.end_of("a1").returncode == DONE
    assert heard.completion.outcome == "infeasible"
    assert "epoch 1" in str(heard.completion.reason)
    assert heard.completion.epochs_trained == 0


def test_running_out_of_memory_is_infeasible(tmp_path: Path) -> None:
    with slots_in(tmp_path) as slots:
        assert slots.do("first", PrepareJob(task=DIGITS)).returncode == DONE
        # What the fork server may have, its slots may have: 2 GB more than it takes now. Another
        # tenant's attempt has another process.
        server = slots.server()
        pages = int(Path(f"/proc/{server}/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 2 * 10**9
        resource.prlimit(server, resource.RLIMIT_AS, (limit, limit))
        ended = slots.do("a1", train_job(spec=model(40_000)), tenant="another")
        assert ended.returncode == DONE
        completion = slots.of("a1").completion
    assert completion.outcome == "infeasible"
    assert str(completion.reason).startswith("out of memory")


def test_something_unexpected_is_a_failure_with_the_tracebacks_last_lines(
    slots: Slots, begin: Begin
) -> None:
    """A model that the space would have refused: its rank is more than its matrix holds."""
    impossible = model().model_copy(update={"parametrization": LowRank(d=500)})
    heard = begin(train_job(spec=impossible))
    assert slots.end_of("a1").returncode == FAILED
    assert heard.completion.outcome == "failed"
    reason = str(heard.completion.reason)
    assert reason.splitlines()[-1].startswith("models.errors.SlotError")
    assert "Traceback" in slots.log("a1")


def test_a_state_that_is_of_no_use_to_resume_from_means_a_start_anew(
    slots: Slots, begin: Begin
) -> None:
    slots.of("a1").artifacts["resume"] = b"not what a worker stored"
    heard = begin(train_job(epochs=2))
    assert slots.end_of("a1").returncode == DONE
    assert (heard.completion.outcome, heard.completion.epochs_trained) == ("complete", 2)
    assert "starts anew" in slots.log("a1")


def test_shapes_are_measured_in_turn_and_reported_one_by_one(slots: Slots, begin: Begin) -> None:
    gru = ModelSpec(
        architecture=Gru(hidden_size=32),
        parametrization=LowRank(d=4),
        signature=DIGITS.signature(),
    )
    shapes = tuple(
        Shape(trial=trial, shape_key=spec.shape_key(), model=spec)
        for trial, spec in ((4, model()), (7, gru))
    )
    heard = begin(MeasureJob(shapes=shapes, batch_size=8))
    assert slots.end_of("a1").returncode == DONE
    reports = [(body.trial, body.shape_key) for body in heard.bodies(MeasurementReport)]
    assert reports == [(4, model().shape_key()), (7, gru.shape_key())]
    assert heard.completion.outcome == "complete"


def test_a_worker_without_a_compiler_says_that_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    shape = Shape(trial=0, shape_key=model().shape_key(), model=model())
    with slots_in(tmp_path) as slots:
        ended = slots.do("a1", MeasureJob(shapes=(shape,), batch_size=1, runtime="c"))
        assert ended.returncode == FAILED
        completion = slots.of("a1").completion
    assert completion.outcome == "failed"
    assert completion.reason == (
        "CC = 'no-such-compiler' is not found here; allowed is the name of a C compiler"
    )


def test_nothing_is_measured_while_somebody_computes(
    slots: Slots, begin: Begin, tmp_path: Path
) -> None:
    shape = Shape(trial=0, shape_key=model().shape_key(), model=model())
    with MeasurementLock(tmp_path / "lock") as lock:
        with lock.shared():
            heard = begin(MeasureJob(shapes=(shape,), batch_size=8))
            wait_while_it_moves(lambda: len(heard.said("beat")) >= 2, what="signs of life")
            assert not heard.bodies(MeasurementReport)
        assert slots.end_of("a1").returncode == DONE
    assert len(heard.bodies(MeasurementReport)) == 1


def test_training_stands_still_while_somebody_measures_and_says_for_how_long(
    slots: Slots, begin: Begin, tmp_path: Path
) -> None:
    with MeasurementLock(tmp_path / "lock") as lock, lock.exclusive():
        heard = begin(train_job(epochs=1))
        wait_while_it_moves(lambda: "fetch resume" in heard.words, what="the job's begin")
        beats = len(heard.said("beat"))
        wait_while_it_moves(lambda: len(heard.said("beat")) > beats + 1, what="signs of life")
        assert not heard.epochs
    assert slots.end_of("a1").returncode == DONE
    assert heard.completion.stood_still_seconds > 0
    assert heard.epochs[0].stood_still_seconds <= heard.completion.stood_still_seconds
    frame, _ = heard.said("beat")[-1]
    assert frame["held_seconds"] > 0


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


def test_what_a_slot_needs_to_speak_is_imported_before_the_fork() -> None:
    program = "\n".join(
        [
            "import sys",
            "from multiprocessing import Pipe",
            "from search.agents.forking import fork_server",
            "from search.agents.slots.slot_line import SlotLine",
            "fork_server.warm_up()",
            "before = set(sys.modules)",
            "ours, theirs = Pipe()",
            'ours.send_bytes(b\'{"kind": "bye"}\')',
            "assert SlotLine(theirs).next_job() is None",
            "print(*set(sys.modules) - before)",
        ]
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert ended.stdout.split() == []
