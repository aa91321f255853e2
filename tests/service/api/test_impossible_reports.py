"""What a worker says is held against its job: what cannot be changes nothing and ends it."""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from safetensors.torch import save
from starlette.testclient import TestClient

from models.checkpoint import INTERFACE, load, plain_bytes, save_bytes
from models.interface import Classes, Interface
from search.dispatch.runs.measuring_queue import measure_models_job
from search.studies.spec import StudySpec
from search.training.jobs import MeasureJob, PrepareJob, TrainJob
from storage.endings import AttemptCause
from storage.records import AttemptState, StudyRecord, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempts import Attempts
from storage.repositories.measurements import Measurements
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.search.honest_words import DEVICE, files, measurement, resume_file
from tests.service.machines import beat, say
from tests.service.site import SMALL_SPEC, Lease, Site

EPOCH: dict[str, Any] = {"epoch": 1, "train_loss": 1.0, "validation": 0.5, "seconds": 0.1}
END: dict[str, Any] = {
    "outcome": "complete",
    "quality": 0.5,
    "test_quality": 0.4,
    "test_metrics": {"accuracy": 0.4},
    "best_epoch": 1,
    "epochs_trained": 2,
}


@pytest.fixture
def study(site: Site) -> StudyRecord:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    return study


@pytest.fixture
def lease(site: Site, study: StudyRecord) -> Lease[TrainJob]:
    return site.lease(study, 0)


def put(client: TestClient, lease: Lease[Any], role: str, content: bytes) -> Any:
    return client.put(lease.path(f"artifacts/{role}"), headers=lease.headers, content=content)


def assert_refused(
    client: TestClient, site: Site, lease: Lease[Any], answer: Any, path: str
) -> None:
    """Refused with the place of the fault, and the attempt has ended by its own doing."""
    if isinstance(answer, list):
        [(why, detail)] = answer
        assert why == "invalid"
        assert path in detail
    else:
        assert answer.status_code == 422, answer.text
        problem = answer.json()
        assert problem["type"] == "urn:reflectory:report-refused"
        assert path in [fault["path"] for fault in problem["errors"]], problem
    with site.database.read() as session:
        attempt = Attempts(session).get(lease.attempt)
    assert attempt.state == AttemptState.ENDED
    assert attempt.cause is AttemptCause.IMPOSSIBLE
    assert (attempt.detail or "").startswith(f"{path}: ")
    assert [why for why, _ in beat(client, lease)] == ["lease"], "it goes on"


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("validation", {"validation": 5.0}),
        ("validation", {"validation": -0.01}),
        ("epoch", {"epoch": 999}),
        ("epoch", {"epoch": 3}),
        ("epoch", {"epoch": 0, "train_loss": None}),
        ("epoch", {"epoch": 2}),
        ("epoch", {"epoch": 10**30}),
        ("train_loss", {"train_loss": -1e-9}),
        ("train_loss", {"train_loss": None}),
        ("validation_loss", {"validation_loss": -1e-9}),
        ("spectral_margin", {"spectral_margin": -1.0}),
        ("gradient_first", {"gradient_first": -1.0}),
        ("seconds", {"seconds": 1e7}),
        ("stood_still_seconds", {"stood_still_seconds": 1e7}),
        ("held_seconds", {"held_seconds": 1e300}),
    ],
    ids=str,
)
def test_an_epoch_that_cannot_be(
    client: TestClient,
    site: Site,
    study: StudyRecord,
    lease: Lease[TrainJob],
    path: str,
    change: Mapping[str, Any],
) -> None:
    assert_refused(client, site, lease, say(client, lease, "epoch", {**EPOCH, **change}), path)
    with site.database.read() as session:
        assert Metrics(session).curve(study.id, 0) == []
        assert Trials(session).get(study.id, 0).epochs_trained == 0


def test_an_epoch_may_be_said_again_and_by_the_next_attempt(
    client: TestClient, site: Site, study: StudyRecord, lease: Lease[TrainJob]
) -> None:
    for number in (1, 1, 2):
        assert say(client, lease, "epoch", {**EPOCH, "epoch": number}) == []
    again = site.lease(study, 0, attempt=2)
    for number in (2, 1):
        assert say(client, again, "epoch", {**EPOCH, "epoch": number}) == []


def test_a_heartbeat_of_more_time_than_there_was(
    client: TestClient, site: Site, study: StudyRecord, lease: Lease[TrainJob]
) -> None:
    """A clock that is set back by hours is no lie; what uses up a budget of years is."""
    assert beat(client, lease, 7200.0) == []
    with site.database.read() as session:
        before = Attempts(session).device_seconds(study.id, lease_time(site, lease))
    answer = beat(client, lease, 1e9)
    assert_refused(client, site, lease, answer, "held_seconds")
    with site.database.read() as session:
        after = Attempts(session).device_seconds(study.id, lease_time(site, lease))
    assert after == before == 7200.0


def lease_time(site: Site, lease: Lease[Any]) -> Any:
    with site.database.read() as session:
        return Attempts(session).get(lease.attempt).started_at


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("quality", {"quality": 5.0}),
        ("quality", {"quality": 0.75}),
        ("quality", {"quality": None}),
        ("test_quality", {"test_quality": -1.0}),
        ("test_quality", {"test_quality": None}),
        ("test_metrics.accuracy", {"test_metrics": {"accuracy": 1.5}}),
        ("test_metrics.accuracy", {"test_metrics": {"accuracy": 0.41}}),
        ("test_metrics.bleu", {"test_metrics": {"bleu": 0.4}}),
        ("best_epoch", {"best_epoch": 7}),
        ("best_epoch", {"best_epoch": None}),
        ("epochs_trained", {"epochs_trained": 1}),
        ("epochs_trained", {"epochs_trained": 999}),
        ("epochs_trained", {"outcome": "infeasible", "epochs_trained": 3}),
        ("best_epoch", {"outcome": "stopped", "epochs_trained": 0}),
    ],
    ids=str,
)
def test_an_end_that_cannot_be(
    client: TestClient,
    site: Site,
    study: StudyRecord,
    lease: Lease[TrainJob],
    path: str,
    change: Mapping[str, Any],
) -> None:
    for number in (1, 2):
        body = {**EPOCH, "epoch": number, "validation": 0.5 / number}
        assert say(client, lease, "epoch", body) == []
    for role, content in files(lease.job).items():
        assert put(client, lease, role, content).status_code == 200
    assert_refused(client, site, lease, say(client, lease, "end", {**END, **change}), path)
    with site.database.read() as session:
        assert Trials(session).get(study.id, 0).state == TrialState.RUNNING
    again = site.lease(study, 0, attempt=2)
    assert say(client, again, "end", END) == []


def test_a_trial_that_never_trained_is_not_complete(
    client: TestClient, site: Site, lease: Lease[TrainJob]
) -> None:
    answer = say(client, lease, "end", END)
    assert_refused(client, site, lease, answer, "epochs_trained")


def lengthened(content: bytes, by: int) -> bytes:
    return content + b"\0" * by


def headed(content: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """The file with another header before the same numbers."""
    (length,) = struct.unpack_from("<Q", content)
    header = json.loads(content[8 : 8 + length])
    change(header)
    document = json.dumps(header).encode()
    return struct.pack("<Q", len(document)) + document + content[8 + length :]


def renamed(header: dict[str, Any]) -> None:
    header["another"] = header.pop("readout.bias")


def overlapping(header: dict[str, Any]) -> None:
    header["readout.bias"]["data_offsets"] = [0, 40]


def specless(header: dict[str, Any]) -> None:
    header["__metadata__"] = {"format": "pt"}


def of_another_size(job: TrainJob) -> bytes:
    architecture = {**job.trial.model.architecture.model_dump(), "hidden_size": 24}
    model = job.trial.model.model_copy(
        update={"architecture": type(job.trial.model.architecture).model_validate(architecture)}
    )
    return save_bytes(model.build(seed=1), model)


def disguised(job: TrainJob) -> bytes:
    """Another model's numbers under the trial's spec."""
    other, right = load(of_another_size(job)), job.trial.model
    return save_bytes(other.module, right)


def with_interface_of_more(job: TrainJob) -> bytes:
    model = job.trial.model
    classes = Classes(classes=tuple(map(str, range(model.signature.output_size + 1))))
    told = Interface(sample=(64,), answer=classes).model_dump_json()
    return save_bytes(model.build(seed=1), model, extra={INTERFACE: told})


def in_halves(job: TrainJob) -> bytes:
    module = job.trial.model.build(seed=1).half()
    return save_bytes(module, job.trial.model)


CHECKPOINTS: Mapping[str, Callable[[TrainJob, bytes], bytes]] = {
    "junk": lambda _job, _good: b"junk",
    "nothing": lambda _job, _good: b"",
    "a pickle": lambda _job, _good: b"\x80\x04\x95" + b"c" * 100,
    "cut off": lambda _job, good: good[:-1],
    "longer": lambda _job, good: lengthened(good, 1),
    "another name": lambda _job, good: headed(good, renamed),
    "overlapping": lambda _job, good: headed(good, overlapping),
    "no spec": lambda _job, good: headed(good, specless),
    "plain tensors": lambda _job, _good: plain_bytes({"x": torch.zeros(3)}, {}),
    "another model": lambda job, _good: of_another_size(job),
    "another model in disguise": lambda job, _good: disguised(job),
    "another interface": lambda job, _good: with_interface_of_more(job),
    "another type": lambda job, _good: in_halves(job),
    "a huge header": lambda _job, _good: struct.pack("<Q", 2**62) + b"{",
    "a deep header": lambda _job, _good: struct.pack("<Q", 200_000) + b"[" * 200_000,
}


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_checkpoint_that_is_none_of_the_trials_is_not_stored(
    client: TestClient, site: Site, study: StudyRecord, lease: Lease[TrainJob], name: str
) -> None:
    content = CHECKPOINTS[name](lease.job, files(lease.job)["checkpoint"])
    answer = put(client, lease, "checkpoint", content)
    assert_refused(client, site, lease, answer, "checkpoint")
    assert_nothing_stored(site, study)


def assert_nothing_stored(site: Site, study: StudyRecord) -> None:
    with site.database.read() as session:
        assert ArtifactRows(session).of_trial(study.id, 0) == {}
    assert list(site.store.digests()) == []


@pytest.fixture(params=[8, 4])
def few(request: pytest.FixtureRequest, site: Site) -> tuple[StudyRecord, Lease[TrainJob]]:
    """A study whose models have few bits, and its trial under way."""
    study = site.study(space={**SMALL_SPEC["space"], "bits": request.param})
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    assert lease.job.trial.model.bits == request.param
    return study, lease


def test_a_checkpoint_of_few_bits_is_taken_with_its_integers(
    client: TestClient, site: Site, few: tuple[StudyRecord, Lease[TrainJob]]
) -> None:
    study, lease = few
    for role, content in files(lease.job).items():
        assert put(client, lease, role, content).status_code == 200, role
    with site.database.read() as session:
        stored = ArtifactRows(session).of_trial(study.id, 0)
    assert set(stored) == {"checkpoint", "report", "resume"}
    # What goes on being trained has all its bits.
    assert stored["resume"].size > stored["checkpoint"].size


def unrounded(job: TrainJob) -> bytes:
    """The trial's tensors in single precision, under its own spec."""
    model = job.trial.model.unrounded
    content = save_bytes(model.build(seed=1), model)
    return with_spec(content, job.trial.model.model_dump_json(), "reflectory.checkpoint.2")


def of_other_bits(job: TrainJob) -> bytes:
    bits = 4 if job.trial.model.bits == 8 else 8
    model = job.trial.model.model_copy(update={"bits": bits})
    content = save_bytes(model.build(seed=1), model)
    return with_spec(content, job.trial.model.model_dump_json(), "reflectory.checkpoint.2")


def of_32_bits(job: TrainJob) -> bytes:
    model = job.trial.model.unrounded
    return save_bytes(model.build(seed=1), model)


def with_spec(content: bytes, spec: str, form: str) -> bytes:
    def change(header: dict[str, Any]) -> None:
        header["__metadata__"] |= {"spec": spec, "format": form}

    return headed(content, change)


@pytest.mark.parametrize("make", [unrounded, of_other_bits, of_32_bits])
def test_a_checkpoint_of_other_bits_than_the_trials_is_not_stored(
    client: TestClient,
    site: Site,
    few: tuple[StudyRecord, Lease[TrainJob]],
    make: Callable[[TrainJob], bytes],
) -> None:
    study, lease = few
    answer = put(client, lease, "checkpoint", make(lease.job))
    assert_refused(client, site, lease, answer, "checkpoint")
    assert_nothing_stored(site, study)


def with_tensors(job: TrainJob, **more: torch.Tensor) -> bytes:
    """The trial's state to resume from with further tensors."""
    content = resume_file(job)
    (length,) = struct.unpack_from("<Q", content)
    metadata = json.loads(content[8 : 8 + length])["__metadata__"]
    state = {f"model:{n}": t for n, t in job.trial.model.build(seed=1).state_dict().items()}
    return save({**state, **more}, metadata)


def far_ahead(job: TrainJob) -> bytes:
    return resume_file(job, epoch=job.epochs + 2)


def of_another_seed(job: TrainJob) -> bytes:
    trial = job.trial.model_copy(update={"seed": job.trial.seed + 1})
    return resume_file(job.model_copy(update={"trial": trial}))


OTHERS: Mapping[str, tuple[str, Callable[[TrainJob], bytes]]] = {
    "resume: junk": ("resume", lambda _job: b"x"),
    "resume: a checkpoint": ("resume", lambda job: files(job)["checkpoint"]),
    "resume: another trial's": ("resume", of_another_seed),
    "resume: beyond the budget": ("resume", far_ahead),
    "resume: ballast": ("resume", lambda job: with_tensors(job, ballast=torch.zeros(9))),
    "resume: moments of nothing": (
        "resume",
        lambda job: with_tensors(job, **{"optimizer:none/exp_avg": torch.zeros(9)}),
    ),
    "resume: moments too large": (
        "resume",
        lambda job: with_tensors(job, **{"optimizer:readout.bias/exp_avg": torch.zeros(999)}),
    ),
    "resume: a large generator": (
        "resume",
        lambda job: with_tensors(job, **{"rng:order": torch.zeros(1 << 20, dtype=torch.uint8)}),
    ),
    "resume: a large carried state": (
        "resume",
        lambda job: with_tensors(job, **{"carried:0": torch.zeros(10_000, 8)}),
    ),
    "report: junk": ("report", lambda _job: b"{}"),
    "report: not JSON": ("report", lambda _job: b"\xff\xfe"),
    "report: other counts": (
        "report",
        lambda job: files(job)["report"].replace(b'"parameters":', b'"parameters":1', 1),
    ),
    "report: too long": ("report", lambda job: files(job)["report"] + b" " * (1 << 20)),
    "samples: junk": ("samples", lambda _job: b"x"),
    "samples: a checkpoint": ("samples", lambda job: files(job)["checkpoint"]),
    "samples: without what is right": ("samples", lambda _job: samples(y=None)),
    "samples: of two counts": ("samples", lambda _job: samples(y=torch.zeros(3))),
    "samples: too many": (
        "samples",
        lambda _job: samples(x=torch.zeros(5000, 1), y=torch.zeros(5000)),
    ),
    "samples: too large": (
        "samples",
        lambda _job: samples(x=torch.zeros(2, 1 << 20), y=torch.zeros(2)),
    ),
    "samples: of another type": ("samples", lambda _job: samples(x=torch.zeros(2, 3).double())),
    "samples: with more": ("samples", lambda _job: samples(z=torch.zeros(2))),
    "conversion: of a trial that has none": ("conversion", lambda _job: b"{}"),
}


def samples(**changed: torch.Tensor | None) -> bytes:
    tensors = {"x": torch.zeros(2, 3), "y": torch.zeros(2), **changed}
    return plain_bytes(
        {name: tensor for name, tensor in tensors.items() if tensor is not None},
        {"format": "reflectory.samples.1"},
    )


@pytest.mark.parametrize("name", OTHERS)
def test_another_file_that_is_none_of_the_trials_is_not_stored(
    client: TestClient, site: Site, study: StudyRecord, lease: Lease[TrainJob], name: str
) -> None:
    role, make = OTHERS[name]
    assert_refused(client, site, lease, put(client, lease, role, make(lease.job)), role)
    assert_nothing_stored(site, study)


@pytest.fixture
def measuring(site: Site, study: StudyRecord) -> Lease[MeasureJob]:
    with site.database.read() as session:
        trial = Trials(session).get(study.id, 0)
    spec = StudySpec.model_validate(study.spec)
    job = measure_models_job(spec, [trial], device=DEVICE)
    return site.attempt(study, job, number=0)


def measured(job: MeasureJob) -> dict[str, Any]:
    body = measurement(job, job.shapes[0], speed=1000.0, ratio=0.5)
    return body.model_dump(mode="json")


def test_a_measurement_of_the_jobs_own_shape_is_taken(
    client: TestClient, site: Site, study: StudyRecord, measuring: Lease[MeasureJob]
) -> None:
    assert say(client, measuring, "measurement", measured(measuring.job)) == []
    with site.database.read() as session:
        assert Trials(session).get(study.id, 0).throughput == 1000.0


@pytest.mark.parametrize(
    ("path", "change"),
    [
        ("shape_key", {"trial": 3}),
        ("shape_key", {"shape_key": "another"}),
        ("device", {"device": "a faster one"}),
        ("record.device", {"record.device": "a faster one"}),
        ("record.parameters", {"record.parameters": 1}),
        ("record.dense_parameters", {"record.dense_parameters": 10**9}),
        ("record.samples_per_second.median", {"samples_per_second": 1e9}),
        ("record.ratio.median", {"ratio": 9.0}),
        ("record.batch_size", {"record.batch_size": 1}),
        ("record.threads", {"record.threads": 64}),
        ("record.mode", {"record.mode": "training"}),
        ("record.sequence_length", {"record.sequence_length": 1}),
        ("record.ratio", {"record.ratio.low": -1.0}),
        ("record.samples_per_second", {"record.samples_per_second.high": 1.0}),
        ("record.clock", {"record.clock": "sundial"}),
        ("seconds", {"seconds": 1e7}),
    ],
    ids=str,
)
def test_a_measurement_that_cannot_be(
    client: TestClient,
    site: Site,
    study: StudyRecord,
    measuring: Lease[MeasureJob],
    path: str,
    change: Mapping[str, Any],
) -> None:
    body = measured(measuring.job)
    for place, value in change.items():
        *above, name = place.split(".")
        part = body
        for key in above:
            part = part[key]
        part[name] = value
    answer = say(client, measuring, "measurement", body)
    assert_refused(client, site, measuring, answer, path)
    with site.database.read() as session:
        assert Measurements(session).of_study(study.id) == []
        assert Trials(session).get(study.id, 0).throughput is None


def test_a_job_is_spoken_of_in_its_own_words_alone(
    client: TestClient, site: Site, study: StudyRecord, measuring: Lease[MeasureJob]
) -> None:
    """Who measures trains nothing and stores nothing."""
    assert [why for why, _ in say(client, measuring, "epoch", EPOCH)] == ["conflict"]
    answer = put(client, measuring, "checkpoint", b"junk")
    assert answer.status_code == 409
    assert_nothing_stored(site, study)


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        {"train": 1, "validation": 1, "test": 1, "metric": "accuracy", "baseline": 0.9},
        {"train": 0, "validation": 1, "test": 1, "metric": "accuracy", "baseline": 0.1},
        {"train": 1, "validation": 1, "test": 1, "metric": "mse", "baseline": 0.1},
        {"train": 1, "validation": 1, "test": 1, "metric": "accuracy", "baseline": 0.1, "x": 1},
    ],
    ids=str,
)
def test_data_that_cannot_be_prepare_no_study(
    client: TestClient, site: Site, study: StudyRecord, found: Any
) -> None:
    job = PrepareJob(task=StudySpec.model_validate(study.spec).trained_task)
    lease = site.attempt(study, job)
    answer = say(client, lease, "end", {"outcome": "complete", "prepared": found})
    assert [why for why, _ in answer] == ["invalid"]
    with site.database.read() as session:
        assert Studies(session).get(study.id).prepared is None
        assert Attempts(session).get(lease.attempt).state == AttemptState.ENDED
