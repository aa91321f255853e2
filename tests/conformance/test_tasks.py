"""What every task of the union promises, in every form that its samples take."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import pytest
import torch
from pydantic import TypeAdapter
from torch import Tensor

from models.architectures import Gru
from models.interface import Interface, Standardise
from models.model import ModelSpec
from models.parametrizations import Dense
from models.spec import kind_of
from search.errors import DataError, TaskUnresolved
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from search.tasks import TASKS, AnyTask, Batch, DataSources, Samples, Split, Splits, Task
from search.tasks.raw_samples import MOST_SAMPLE_BYTES, MOST_SAMPLES, RawSamples
from search.tasks.text.token_samples import TokenStream
from search.training.jobs import TrainJob
from search.training.run import train
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.conformance.task_cases import write_all
from tests.search.training_cases import RecordingHooks

ADAPTER: TypeAdapter[AnyTask] = TypeAdapter(AnyTask)


def names() -> list[str]:
    with TemporaryDirectory() as root:
        return list(write_all(Path(root))[0])


NAMES = names()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Mapping[str, Task], DataSources]:
    return write_all(tmp_path_factory.mktemp("tasks"))


@pytest.fixture(scope="module")
def sources(written: tuple[Mapping[str, Task], DataSources]) -> DataSources:
    return written[1]


@pytest.fixture(params=NAMES)
def sent(request: pytest.FixtureRequest, written: tuple[Mapping[str, Task], DataSources]) -> Any:
    """The document as a user sends it."""
    return written[0][request.param]


@pytest.fixture
def task(sent: Any, sources: DataSources) -> Any:
    return sent.resolved(sources)


@pytest.fixture
def splits(task: Task, sources: DataSources) -> Splits:
    return task.load(sources)


def parts(splits: Splits) -> list[Samples]:
    return [splits.train, splits.validation, splits.test]


def in_order(samples: Samples, size: int = 16) -> list[Batch]:
    return [samples.take(named) for named in samples.batches(size, None)]


def model_for(task: Task) -> ModelSpec:
    return ModelSpec(
        architecture=Gru(hidden_size=6), parametrization=Dense(), signature=task.signature()
    )


def answers(task: Task, samples: Samples, batches: list[Batch]) -> list[Tensor]:
    """What an untrained model says, with its state carried on where the samples go on."""
    module, state, outputs = model_for(task).build(seed=3), (), []
    for batch in batches:
        if samples.carries_state:
            output, state = module.step(batch.x, state)
        else:
            output = module(batch.x, lengths=batch.lengths)
        outputs.append(output.detach())
    return outputs


def equal(one: Batch, other: Batch) -> bool:
    pairs = ((one.x, other.x), (one.y, other.y), (one.lengths, other.lengths))
    return one.counts == other.counts and all(
        left is right or (left is not None and right is not None and torch.equal(left, right))
        for left, right in pairs
    )


def test_the_registry_is_the_union_and_every_kind_takes_part(
    written: tuple[Mapping[str, Task], DataSources],
) -> None:
    union, _ = get_args(AnyTask)
    assert get_args(union) == TASKS
    kinds = [kind_of(variant) for variant in TASKS]
    assert len(set(kinds)) == len(kinds)
    assert {task.kind for task in written[0].values()} == set(kinds)
    assert all(task.title and task.paper and task.__doc__ for task in TASKS)


@pytest.mark.parametrize("variant", TASKS, ids=kind_of)
def test_the_example_is_resolved_and_survives_json(variant: Any) -> None:
    example = variant.example()
    assert ADAPTER.validate_json(ADAPTER.dump_json(example)) == example
    assert example.signature().output_size >= 1
    assert math.isfinite(example.metric.baseline)


def test_the_document_survives_json_before_and_after(sent: Any, task: Any) -> None:
    for document in (sent, task):
        assert ADAPTER.validate_json(ADAPTER.dump_json(document)) == document


def test_resolving_again_changes_nothing(task: Any, sources: DataSources, tmp_path: Path) -> None:
    assert task.resolved(sources) == task
    assert task.resolved(replace(sources, cache=tmp_path)) == task


def test_what_follows_from_data_is_not_known_before(sent: Any, task: Any) -> None:
    if sent == task:
        assert sent.metric == task.metric
        return
    for ask in (lambda: sent.metric, sent.signature):
        with pytest.raises(TaskUnresolved):
            ask()


def test_data_that_are_not_there_are_named(sent: Any, task: Any, tmp_path: Path) -> None:
    if sent == task:
        pytest.skip("nothing follows from its data")
    nowhere = DataSources(cache=tmp_path)
    for ask in (lambda: sent.resolved(nowhere), lambda: task.load(nowhere)):
        with pytest.raises(DataError) as told:
            ask()
        named = [getattr(sent, field, None) for field in ("id", "name", "file")]
        assert any(name and name in str(told.value) for name in named), told.value


def test_batches_have_the_shapes_that_the_signature_says(task: Task, splits: Splits) -> None:
    signature = task.signature()
    for samples in parts(splits):
        assert len(samples) > 0
        batches = in_order(samples)
        for batch, output in zip(batches, answers(task, samples, batches), strict=True):
            rows, steps = batch.x.shape[:2]
            if signature.vocabulary is None:
                assert batch.x.dtype == torch.float32
                assert batch.x.shape[2:] == (signature.input_size,)
                assert batch.x.isfinite().all()
            else:
                assert batch.x.dtype == torch.int64
                assert batch.x.min() >= 0
                assert batch.x.max() < signature.vocabulary
            if signature.output_steps == "last":
                assert steps == signature.sequence_length
                assert output.shape == (rows, signature.output_size)
                assert len(batch.y) == rows
            else:
                assert output.shape == (rows, steps, signature.output_size)
                assert batch.y.shape[:2] == (rows, steps)
            if batch.lengths is not None:
                assert batch.lengths.shape == (rows,)
                assert batch.lengths.min() >= 1
                assert batch.lengths.max() <= steps
            assert batch.counts > 0


def test_no_sample_is_in_two_splits(task: Task, splits: Splits) -> None:
    if not isinstance(splits.train, Split):
        pytest.skip(f"{task.kind} has no samples in memory that could be compared")
    rows = [
        {row.numpy().tobytes() for row in samples.x.flatten(1)}
        for samples in parts(splits)
        if isinstance(samples, Split)
    ]
    assert not any(one & other for one, other in combinations(rows, 2))


def test_the_same_data_give_the_same_splits_in_the_same_order(
    task: Task, splits: Splits, sources: DataSources, tmp_path: Path
) -> None:
    again = task.load(replace(sources, cache=tmp_path))
    assert again.sizes == splits.sizes
    for one, other in zip(parts(splits), parts(again), strict=True):
        assert all(map(equal, in_order(one), in_order(other)))


def test_a_seed_decides_the_order_of_an_epoch(splits: Splits) -> None:
    def epoch() -> list[Batch]:
        generator = torch.Generator().manual_seed(1)
        return [splits.train.take(named) for named in splits.train.batches(16, generator)]

    first = epoch()
    assert sum(batch.counts for batch in first) > 0
    assert all(map(equal, first, epoch()))


def test_the_loss_is_a_finite_number_that_can_be_descended(task: Task, splits: Splits) -> None:
    batch = in_order(splits.train)[0]
    (output,) = answers(task, splits.train, [batch])
    output.requires_grad_()
    loss = task.loss(output, batch.y)
    assert loss.shape == ()
    assert loss.isfinite()
    (gradient,) = torch.autograd.grad(loss, output)
    assert task.loss(output - 0.1 * gradient, batch.y) < loss


def test_metrics_do_not_depend_on_how_samples_come_in_batches(task: Task, splits: Splits) -> None:
    if splits.validation.carries_state:
        pytest.skip("rows of a text begin elsewhere when there are more of them")
    found: list[Mapping[str, float]] = []
    for size in (7, 1000):
        batches = in_order(splits.validation, size)
        meter = task.meter()
        for batch, output in zip(batches, answers(task, splits.validation, batches), strict=True):
            meter.add(output, batch.y)
        found.append(meter.values())
    assert task.metric.name in found[0]
    ranges = task.meter().ranges
    assert all(value in ranges[name] for name, value in found[0].items() if math.isfinite(value))
    assert found[0] == pytest.approx(found[1], rel=1e-4)


def test_a_metric_says_which_values_it_can_have(task: Task) -> None:
    metric, known = task.metric, task.meter().ranges[task.metric.name]
    best = known.high if metric.direction == "maximize" else known.low
    assert metric.baseline in known
    assert best in known, "no model is better than perfect"
    beyond = best + 1 if metric.direction == "maximize" else best - 1
    for value in (beyond, math.nan, math.inf, -math.inf):
        assert value not in known


def test_better_is_in_the_metrics_direction(task: Task) -> None:
    metric = task.metric
    best = 1.0 if metric.direction == "maximize" else 0.0
    assert metric.is_better(best, metric.baseline)
    assert not metric.is_better(metric.baseline, best)
    assert not metric.is_better(best, best)


def held(splits: Splits, count: int) -> Batch:
    """The first so many validation samples, as the split holds them."""
    samples = splits.validation
    if isinstance(samples, TokenStream):
        # A text is read in one row, window by window.
        windows = [samples.take(torch.tensor([1, n * samples.window])) for n in range(count)]
        return Batch(torch.cat([w.x for w in windows]), torch.cat([w.y for w in windows]))
    return samples.take(torch.cat(list(samples.batches(16, None)))[:count])


def test_raw_samples_become_what_the_split_holds(
    task: Task, splits: Splits, sources: DataSources
) -> None:
    interface, raw = task.interface(sources), task.raw_samples(sources)
    found, expected = interface.preprocess(raw.x, raw.lengths), held(splits, len(raw))
    assert found.dtype == expected.x.dtype
    if any(isinstance(step, Standardise) for step in interface.inputs):
        # In single precision here, where the split's numbers were rounded once.
        torch.testing.assert_close(found, expected.x, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(
            interface.answer.target(raw.y), expected.y, rtol=1e-5, atol=1e-5, check_dtype=True
        )
    else:
        assert torch.equal(found, expected.x)
        assert torch.equal(interface.answer.target(raw.y), expected.y)
    assert equal_or_none(raw.lengths, expected.lengths if interface.padded else None)


def equal_or_none(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other or (one is not None and other is not None and torch.equal(one, other))


def test_raw_samples_have_the_shape_that_the_interface_says_and_survive_bytes(
    task: Task, sources: DataSources
) -> None:
    interface, raw = task.interface(sources), task.raw_samples(sources)
    assert Interface.model_validate_json(interface.model_dump_json()) == interface
    assert (raw.lengths is not None) == interface.padded
    assert 1 <= len(raw) <= MOST_SAMPLES
    assert raw.x.ndim == 1 + len(interface.sample)
    for size, named in zip(raw.x.shape[1:], interface.sample, strict=True):
        assert named in ("steps", size)
    content = raw.to_bytes()
    assert len(content) < MOST_SAMPLE_BYTES + 1000
    again = RawSamples.from_bytes(content)
    assert again.to_bytes() == content
    for one, other in ((raw.x, again.x), (raw.y, again.y)):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    assert equal_or_none(raw.lengths, again.lengths)


def test_an_answer_gives_the_tasks_metrics_and_names_what_it_decides(
    task: Task, splits: Splits, sources: DataSources
) -> None:
    interface, raw = task.interface(sources), task.raw_samples(sources)
    answer, module = interface.answer, model_for(task).build(seed=3)
    with torch.no_grad():
        output = module(interface.preprocess(raw.x, raw.lengths), lengths=raw.lengths)
    expected, found = task.meter(), task.meter()
    expected.add(output, held(splits, len(raw)).y)
    found.add(answer.output(answer.numbers(output)), answer.target(raw.y))
    assert found.values() == pytest.approx(expected.values(), rel=1e-4, nan_ok=True)
    assert interface.metric in found.values()
    label, names = answer.label(output), answer.names
    assert (label is not None) == answer.decides
    if label is not None:
        assert len(set(names)) == len(names) == task.signature().output_size
        assert label.dtype == torch.int64
        assert label.max() < len(names)


def test_it_can_be_trained_and_tested(task: Any, splits: Splits) -> None:
    trial = TrialSpec(
        model=model_for(task), training=TrainingSpec(learning_rate=0.01, batch_size=16), seed=1
    )
    job = TrainJob(task=task, trial=trial, number=0, epochs=2)
    result = train(job, splits, task=task, hooks=RecordingHooks(), device="cpu")
    assert result.outcome == "complete"
    assert task.metric.name in result.test_metrics
    assert math.isfinite(result.quality)


def test_a_study_can_search_for_it(task: Any) -> None:
    assert SearchSpace(StudySpec(task=task)).parameter_range.low > 0


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("digits", "mnist"))])
def test_guessing_gets_the_baseline_of_balanced_classes(
    name: str, written: tuple[Mapping[str, Task], DataSources]
) -> None:
    task = written[0][name]
    splits = task.load(written[1])
    target = torch.cat([batch.y for part in parts(splits) for batch in in_order(part, 1000)])
    generator, meter = torch.Generator().manual_seed(0), task.meter()
    for _ in range(20):
        meter.add(
            torch.rand(len(target), task.signature().output_size, generator=generator), target
        )
    assert meter.values()["accuracy"] == pytest.approx(task.metric.baseline, abs=0.01)
