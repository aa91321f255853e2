"""What every task of the union promises, in every layout that it has."""

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from pydantic import TypeAdapter

from search.tasks import TASKS, AnyTask, DataSources, Split, Splits, Task
from tests.search.mnist_files import write_mnist

ADAPTER: TypeAdapter[AnyTask] = TypeAdapter(AnyTask)


def variants() -> list[Any]:
    """Each task once per layout."""
    return [
        pytest.param(task(layout=layout), id=f"{task(layout=layout).kind}-{layout}")
        for task in TASKS
        for layout in get_args(task.model_fields["layout"].annotation)
    ]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> DataSources:
    root = tmp_path_factory.mktemp("tasks")
    write_mnist(root / "data")
    return DataSources(cache=root / "cache", folder=root / "data")


@pytest.fixture(params=variants())
def task(request: pytest.FixtureRequest) -> Task:
    return request.param


@pytest.fixture
def splits(task: Task, sources: DataSources) -> Splits:
    return task.load(sources)


def parts(splits: Splits) -> list[Split]:
    return [splits.train, splits.validation, splits.test]


def test_the_registry_is_the_union_and_kinds_are_unique() -> None:
    union, _ = get_args(AnyTask)
    assert get_args(union) == TASKS
    assert len({task().kind for task in TASKS}) == len(TASKS)
    assert all(task.title and task.paper and task.__doc__ for task in TASKS)


def test_the_document_survives_json(task: Any) -> None:
    assert ADAPTER.validate_json(ADAPTER.dump_json(task)) == task


def test_the_signature_is_the_datas(task: Task, splits: Splits) -> None:
    signature = task.signature()
    assert signature.output_steps == "last"
    for split in parts(splits):
        assert len(split) > 0
        assert split.x.shape[1:] == (signature.sequence_length, signature.input_size)
        assert split.x.dtype == torch.float32
        assert split.x.isfinite().all()
        assert split.y.shape == (len(split),)
        assert split.y.dtype == torch.int64
        assert split.y.min() >= 0
        assert split.y.max() < signature.output_size


def test_no_sample_is_in_two_splits(splits: Splits) -> None:
    samples = [{row.tobytes() for row in split.x.flatten(1).numpy()} for split in parts(splits)]
    assert not samples[0] & samples[1]
    assert not samples[0] & samples[2]
    assert not samples[1] & samples[2]


def test_the_same_files_give_the_same_splits_in_the_same_order(
    task: Task, splits: Splits, sources: DataSources, tmp_path: Path
) -> None:
    again = task.load(DataSources(cache=tmp_path, folder=sources.folder))
    for one, other in zip(parts(splits), parts(again), strict=True):
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.y, other.y)


def test_the_loss_is_a_finite_mean_that_can_be_descended(task: Task, splits: Splits) -> None:
    signature = task.signature()
    target = splits.train.y[:32]
    generator = torch.Generator().manual_seed(0)
    output = torch.randn(32, signature.output_size, generator=generator, requires_grad=True)
    loss = task.loss(output, target)
    assert loss.shape == ()
    (gradient,) = torch.autograd.grad(loss, output)
    assert task.loss(output - gradient, target) < loss
    halves = (task.loss(output[:16], target[:16]) + task.loss(output[16:], target[16:])) / 2
    torch.testing.assert_close(loss, halves)


def test_the_baseline_is_what_a_predictor_that_learned_nothing_gets(
    task: Task, splits: Splits
) -> None:
    target = torch.cat([split.y for split in parts(splits)])
    generator = torch.Generator().manual_seed(0)
    shape = len(target), task.signature().output_size
    qualities = [task.quality(torch.rand(shape, generator=generator), target) for _ in range(20)]
    assert sum(qualities) / len(qualities) == pytest.approx(task.metric.baseline, abs=0.01)


def test_perfect_predictions_are_better_than_the_baseline(task: Task, splits: Splits) -> None:
    perfect = torch.nn.functional.one_hot(splits.test.y, task.signature().output_size).float()
    quality = task.quality(perfect, splits.test.y)
    assert quality == 1
    assert task.metric.is_better(quality, task.metric.baseline)
    assert not task.metric.is_better(task.metric.baseline, quality)
    assert not task.metric.is_better(quality, quality)
