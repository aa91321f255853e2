"""Files are held against their checkpoints on each task's own raw samples, in their own runtime."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx
import pytest
import torch
from torch import Tensor

from models.architectures import Gru
from models.checkpoint import INTERFACE, LoadedModel, load, save_bytes
from models.errors import ExportError
from models.exports.onnx.export import NEXT_STATE, STATE, FileOptions, export
from models.exports.onnx.runtime import Session
from models.exports.onnx.verify import verify
from models.model import ModelSpec
from models.parametrizations import LowRank
from search.exports import ExportContext, OnnxVariant
from search.exports.verification import Run, Verification, check_pieces, verified
from search.tasks import DataSources, RawSamples, Task
from storage.records import StudyRecord, StudyState
from tests.conformance.task_cases import write_all
from tests.storage.records import START, trial


def names() -> list[str]:
    with TemporaryDirectory() as root:
        return list(write_all(Path(root))[0])


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Mapping[str, Task], DataSources]:
    return write_all(tmp_path_factory.mktemp("tasks"))


def loaded(task: Task, sources: DataSources) -> LoadedModel:
    """A model of random numbers for a task, as its checkpoint gives it."""
    spec = ModelSpec(
        architecture=Gru(hidden_size=8, reset="after"),
        parametrization=LowRank(d=2),
        signature=task.signature(),
    )
    told = {INTERFACE: task.interface(sources).model_dump_json()}
    return load(save_bytes(spec.build(seed=2), spec, extra=told))


def run_of(model: LoadedModel) -> Run:
    options = FileOptions(interface=model.interface)
    content = export(model.module, model.spec, options)
    # On normal numbers, as every file is tried before it is run on samples.
    verify(content, model.module, model.spec, options)
    return Session(content).run


def judged(run: Run, model: LoadedModel, task: Task, samples: RawSamples) -> Verification:
    return verified(run, model, task, samples, runtime="r", runtime_version="1")


@pytest.mark.parametrize("name", names())
def test_the_onnx_file_of_every_task_answers_as_its_checkpoint(
    name: str, written: tuple[Mapping[str, Any], DataSources]
) -> None:
    sources = written[1]
    task = written[0][name].resolved(sources)
    model, samples = loaded(task, sources), task.raw_samples(sources)
    found = judged(run_of(model), model, task, samples)
    assert found.samples == len(samples)
    assert found.same + found.ties == found.answers
    assert model.interface is not None
    assert (found.answers > 0) == model.interface.answer.decides
    assert found.metric == task.metric.name
    assert found.value == pytest.approx(found.value_of_model, rel=1e-3)
    assert found.share_of_bound is not None
    assert 0 <= found.share_of_bound <= 1
    assert Verification.model_validate_json(found.model_dump_json()) == found


@pytest.mark.parametrize("name", names())
def test_a_file_of_the_network_alone_is_judged_by_the_same_samples(
    name: str, written: tuple[Mapping[str, Any], DataSources]
) -> None:
    sources = written[1]
    task = written[0][name].resolved(sources)
    model, samples = loaded(task, sources), task.raw_samples(sources)
    study = StudyRecord(id="s", name="s", state=StudyState.FINISHED, spec={}, created_at=START)
    context = ExportContext(
        model=model,
        sha256="0" * 64,
        study=study,
        trial=trial(study.id, 0),
        task=task,
        samples=samples,
    )
    made = OnnxVariant(raw=True, guard=True, form="loop").make(context)
    inputs = [port.name for port in onnx.load_from_string(made.content).graph.input]
    assert inputs == ["input"], "it knows of no lengths"
    found = made.verification
    assert found is not None
    assert (found.inputs, found.samples) == ("validation", len(samples))
    assert found.same + found.ties == found.answers
    assert found.value == pytest.approx(found.value_of_model, rel=1e-3)


@pytest.fixture
def digits(written: tuple[Mapping[str, Any], DataSources]) -> tuple[Task, LoadedModel, RawSamples]:
    task = written[0]["digits-rows"]
    return task, loaded(task, written[1]), task.raw_samples(written[1])


def test_another_class_on_one_sample_is_found_and_named(
    digits: tuple[Task, LoadedModel, RawSamples],
) -> None:
    task, model, samples = digits
    run, seen = run_of(model), [0]

    def wrong(x: Tensor, lengths: Tensor | None) -> Mapping[str, Tensor]:
        found = dict(run(x, lengths))
        if seen[0] <= 300 < seen[0] + len(x):
            label = found["label"].clone()
            label[300 - seen[0]] = (label[300 - seen[0]] + 1) % 10
            found["label"] = label
        seen[0] += len(x)
        return found

    with pytest.raises(ExportError, match=r"validation sample 300 the file decides '\d' where"):
        judged(wrong, model, task, samples)


def test_numbers_beyond_the_bound_are_refused(
    digits: tuple[Task, LoadedModel, RawSamples],
) -> None:
    task, model, samples = digits
    run = run_of(model)

    def off(x: Tensor, lengths: Tensor | None) -> Mapping[str, Tensor]:
        found = run(x, lengths)
        return {**found, "output": found["output"] * 1.001}

    with pytest.raises(ExportError, match=r"sample \d+ the file gives .* allowed are"):
        judged(off, model, task, samples)


def test_answers_of_another_shape_and_missing_decisions_are_refused(
    digits: tuple[Task, LoadedModel, RawSamples],
) -> None:
    task, model, samples = digits
    run = run_of(model)
    with pytest.raises(ExportError, match=r"the file gives \[256, 9\] where the model gives"):
        judged(
            lambda x, lengths: {**run(x, lengths), "output": run(x, lengths)["output"][:, 1:]},
            model,
            task,
            samples,
        )
    with pytest.raises(ExportError, match="the file decides None where the model does"):
        judged(lambda x, lengths: {"output": run(x, lengths)["output"]}, model, task, samples)


def test_what_rounding_decides_is_counted_apart(
    digits: tuple[Task, LoadedModel, RawSamples],
) -> None:
    task, model, samples = digits
    with torch.no_grad():
        # Two classes get the same logits: a file that takes the other one is as right.
        weight, bias = (model.module.get_parameter(f"readout.{n}") for n in ("weight", "bias"))
        weight[7] = weight[3]
        bias[7] = bias[3] = bias.max() + 5
    run = run_of(model)

    def other(x: Tensor, lengths: Tensor | None) -> Mapping[str, Tensor]:
        found = run(x, lengths)
        label = found["label"]
        return {**found, "label": torch.where((label == 3) | (label == 7), 7, label)}

    found = judged(other, model, task, samples)
    assert found.ties == 400
    assert found.same == 0
    assert found.value is None


def test_a_stream_in_pieces_gives_what_the_whole_gives(
    written: tuple[Mapping[str, Any], DataSources],
) -> None:
    sources = written[1]
    for name in ("dataset-missing-unequal", "digits-pixels", "copy", "language-words"):
        task = written[0][name].resolved(sources)
        model, samples = loaded(task, sources), task.raw_samples(sources)
        options = FileOptions(interface=model.interface, stream=True)
        session = Session(export(model.module, model.spec, options))

        def run(
            x: Tensor, states: Sequence[Tensor], session: Session = session
        ) -> tuple[Mapping[str, Tensor], Sequence[Tensor]]:
            named = {STATE.format(part): state for part, state in enumerate(states)}
            found = session.run(x, None, named)
            ends = [found.pop(NEXT_STATE.format(part)) for part in range(len(states))]
            return found, ends

        def forgetful(
            x: Tensor, states: Sequence[Tensor], run: Any = run
        ) -> tuple[Mapping[str, Tensor], Sequence[Tensor]]:
            return run(x, states)[0], states

        sizes = check_pieces(run, model, samples)
        assert sizes[0] == 1
        assert 7 in sizes
        with pytest.raises(ExportError, match="pieces of 1 steps give another"):
            check_pieces(forgetful, model, samples)
