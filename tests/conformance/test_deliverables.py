"""Raw row in, label out: every task's files answer as the model that its front tells of.

A model is trained for an epoch on each task, as a worker does it, and stored; each file is made of
the stored bytes. Uploads are among the tasks: numbers near 1e6, quoted and other than English
names, several numbers out, missing values, unequal lengths.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
import torch

from models.architectures import AnyArchitecture, Gru, Lstm, Mlp
from models.checkpoint import LoadedModel, load, save_bytes
from models.exports.c.export import sizes
from models.model import ModelSpec
from models.parametrizations import HouseholderSvd, LowRank
from models.spec import kind_of
from search.exports.export import ExportContext, Made
from search.exports.folder.document import Example
from search.exports.registry import MADE
from search.tasks import DataSources, RawSamples, Task
from search.training.deliverables import checkpoint_metadata
from search.training.jobs import TrainJob
from search.training.run import train
from search.training.trial_spec import TrainingSpec, TrialSpec
from storage.records import StudyRecord, StudyState
from tests.conformance.task_cases import write_all
from tests.search.training_cases import RecordingHooks
from tests.storage.records import START, trial

ARCHITECTURES: Mapping[str, AnyArchitecture] = {
    "gru": Gru(hidden_size=8, reset="after"),
    "lstm": Lstm(hidden_size=8, layers=2),
    "mlp": Mlp(hidden_size=8, layers=2),
}
BITS: Sequence[Literal[32, 8]] = (32, 32, 8)
IN_ALL = ("digits-pixels", "mnist-permuted", "dataset-missing", "dataset-missing-unequal")


def cases() -> list[tuple[str, str]]:
    """Each task with one architecture in turn, and some with all; MLPs answer once."""
    with TemporaryDirectory() as root:
        documents, sources = write_all(Path(root))
        found: list[tuple[str, str]] = []
        for place, (name, task) in enumerate(documents.items()):
            every = task.resolved(sources).signature().output_steps == "every"
            able = [one for one in ARCHITECTURES if not (every and one == "mlp")]
            taken = able if name in IN_ALL else [able[place % len(able)]]
            found += [(name, one) for one in taken]
        return found


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Mapping[str, Task], DataSources]:
    return write_all(tmp_path_factory.mktemp("tasks"))


@dataclass(frozen=True)
class Stored:
    """A trained model, read again."""

    context: ExportContext
    quality: float
    """What the front says, of all validation samples."""
    whole: bool
    """Whether the raw samples that are kept are all of them, and read as training reads them."""


def stored(
    document: Task, sources: DataSources, architecture: AnyArchitecture, bits: Literal[32, 8]
) -> Stored:
    task: Any = document.resolved(sources)
    spec = ModelSpec(
        architecture=architecture,
        parametrization=LowRank(d=2) if bits == 32 else HouseholderSvd(m1=2, m2=2),
        signature=task.signature(),
        bits=bits,
    )
    training = TrainingSpec(learning_rate=0.02, batch_size=32)
    wanted = TrialSpec(model=spec, training=training, seed=3)
    splits = task.load(sources)
    job = TrainJob(task=task, trial=wanted, number=0, epochs=1)
    result = train(job, splits, task=task, hooks=RecordingHooks())
    extra = checkpoint_metadata(
        task, wanted, epoch=1, continues=None, interface=task.interface(sources)
    )
    samples = RawSamples.from_bytes(task.raw_samples(sources).to_bytes())
    study = StudyRecord(
        id="s",
        name="files",
        state=StudyState.FINISHED,
        spec={"task": task.model_dump(mode="json"), "export": {"form": "node"}},
        created_at=START,
    )
    context = ExportContext(
        model=load(save_bytes(result.module, spec, extra=extra)),
        sha256="0" * 64,
        study=study,
        trial=trial("s", 0),
        task=task,
        samples=samples,
    )
    assert result.quality is not None
    validation = splits.validation
    whole = not validation.carries_state and len(samples) == len(validation)
    return Stored(context, result.quality, whole)


def made(context: ExportContext) -> dict[str, Made]:
    """Each file that a model may have."""
    able = [export for export in MADE if export.fault(context.model.spec) is None]
    return {kind_of(export): export.make(context) for export in able}


@pytest.mark.parametrize(("name", "kind"), cases())
def test_every_file_answers_raw_rows_as_the_front_says(
    name: str, kind: str, written: tuple[Mapping[str, Task], DataSources]
) -> None:
    documents, sources = written
    architecture = ARCHITECTURES[kind]
    bits = BITS[list(documents).index(name) % len(BITS)]
    found = stored(documents[name], sources, architecture, bits)
    context = found.context
    files = made(context)
    example = Example.model_validate_json(files.pop("example").content)
    streams = {"onnx_stream"} if architecture.any_length else set[str]()
    assert set(files) == {"onnx", "c", "dense", *streams}
    for role, file in files.items():
        one = file.verification
        assert one is not None
        assert one.inputs == "validation"
        assert context.samples is not None
        assert one.samples == len(context.samples)
        assert one.same + one.ties == one.answers
        if found.whole and one.ties == 0:
            assert one.value == pytest.approx(found.quality, rel=1e-4), role
    size = sizes(context.model.spec, interface=context.interface)
    assert files["c"].on_device["c_flash"] >= size.tables_bytes
    assert files["c"].on_device["c_state"] == size.state_bytes
    _check_checkpoint(context.model, context)
    _check_mean_error(example, context)


def _check_checkpoint(model: LoadedModel, context: ExportContext) -> None:
    """What `load` gives answers raw rows, too: with the labels that the data have."""
    assert context.samples is not None
    samples = context.samples.between(0, 16)
    x = model.preprocess(samples.x, samples.lengths)
    reply = model.postprocess(model.module(x, lengths=samples.lengths))
    assert model.interface is not None
    assert (reply.label is not None) == model.interface.answer.decides
    if reply.label is not None and model.labels is not None:
        assert 0 <= int(reply.label.min()) <= int(reply.label.max()) < max(2, len(model.labels))


def _check_mean_error(example: Example, context: ExportContext) -> None:
    """The spread that intervals follow from is that of the task's metric of single samples."""
    model, samples = context.model, context.samples
    if example.mean_error is None:
        return
    assert samples is not None
    assert model.interface is not None
    values: list[float] = []
    for place in range(example.mean_error.samples):
        one = samples.between(place, place + 1)
        meter = context.task.meter()
        with torch.no_grad():
            output = model.module(model.preprocess(one.x, one.lengths), lengths=one.lengths)
        meter.add(output, model.interface.answer.target(one.y))
        values.append(meter.values()[context.task.metric.name])
    spread = torch.tensor(values, dtype=torch.float64).std()
    assert example.mean_error.deviation == pytest.approx(float(spread), rel=1e-3)
