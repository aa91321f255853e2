"""The squared hinge and the penalty on the readout, against loops of plain numbers."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from models.model import after_step
from search.errors import SpecRefused
from search.spaces import SearchSpace
from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from search.tasks import Split, Splits, squared_hinge
from search.tasks.samples import IGNORED
from search.training.run import train
from search.training.stacks import Entry, stack_key
from search.training.trial_spec import TrainingSpec
from tests.search.training.stacks.stack_cases import Told, alone, assert_same, together
from tests.search.training_cases import TASK, RecordingHooks, load_splits, make_job


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Splits[Split]:
    return load_splits(tmp_path_factory.mktemp("cache"))


def hinges(outputs: NDArray[np.float64], targets: NDArray[np.int64]) -> float:
    """The formula, number by number."""
    rows = outputs.reshape(-1, outputs.shape[-1])
    total, count = 0.0, 0
    for row, target in zip(rows, targets.flatten(), strict=True):
        if target == IGNORED:
            continue
        for place, y in enumerate(row):
            k = 1 if place == target else -1
            total += max(0.0, 1 - k * float(y)) ** 2
            count += 1
    return total / count


@pytest.mark.parametrize("shape", [(7,), (4, 6)], ids=["samples", "steps"])
def test_the_squared_hinge_is_the_mean_over_samples_and_classes(shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(1)
    output = 2 * torch.randn(*shape, 5, generator=generator, dtype=torch.float64)
    target = torch.randint(5, shape, generator=generator)
    target.view(-1)[2] = IGNORED
    output.requires_grad_()
    loss = squared_hinge(output, target)
    assert loss.item() == pytest.approx(hinges(output.detach().numpy(), target.numpy()))
    assert torch.autograd.gradcheck(lambda y: squared_hinge(y, target), output)


def test_training_differentiates_the_hinge_and_the_norm_of_the_readout(
    splits: Splits[Split],
) -> None:
    training = TrainingSpec(
        optimizer="sgd",
        learning_rate=0.1,
        batch_size=64,
        loss="squared_hinge",
        readout_penalty=20.0,
        clip_norm=None,
    )
    job = make_job(epochs=1, training=training)
    hooks = RecordingHooks()
    result = train(job, splits, task=TASK, hooks=hooks)
    module = job.trial.model.build(seed=job.trial.seed)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    order, total = torch.Generator().manual_seed(job.trial.seed), 0.0
    for rows in torch.split(torch.randperm(len(splits.train), generator=order), 64):
        x, y = splits.train.x[rows], splits.train.y[rows]
        k = 2 * nn.functional.one_hot(y, 10) - 1
        loss = (1 - k * module(x)).relu().square().mean()
        matrix = module.get_submodule("readout").get_parameter("weight")
        optimizer.zero_grad()
        (loss + 20.0 * matrix.square().sum().sqrt() / matrix.numel()).backward()
        optimizer.step()
        after_step(module)
        total += loss.item() * len(rows)
    assert hooks.reports[0].train_loss == pytest.approx(total / len(splits.train), rel=1e-6)
    for name, parameter in module.state_dict().items():
        torch.testing.assert_close(result.module.state_dict()[name], parameter)
    # What is measured is the task's own metric.
    assert 0 <= result.quality <= 1


def test_trials_trained_together_have_the_same_loss(splits: Splits[Split]) -> None:
    trainings = [
        TrainingSpec(learning_rate=rate, loss="squared_hinge", readout_penalty=0.5)
        for rate in (0.01, 0.02, 0.005)
    ]
    entries = [
        Entry(make_job("rnn-householder_svd", seed=seed, training=one), Told())
        for seed, one in enumerate(trainings)
    ]
    for found, entry in zip(together(entries, splits), entries, strict=True):
        assert_same(found, alone(entry, splits), bound=1e-3)


@pytest.mark.parametrize("changes", [{"loss": "squared_hinge"}, {"readout_penalty": 0.1}], ids=str)
def test_other_losses_are_not_trained_together(changes: dict[str, Any]) -> None:
    other = TrainingSpec(learning_rate=0.01, **changes)
    assert stack_key(make_job(training=other)) != stack_key(make_job())


def study(**fields: Any) -> StudySpec:
    document = {"architectures": ["rnn"], "parametrizations": ["dense"], **fields}
    return StudySpec.model_validate(document)


@pytest.mark.parametrize("name", ["loss", "training.loss"])
@pytest.mark.parametrize("value", ["squared_hinge", {"options": ["task", "squared_hinge"]}])
def test_a_hinge_without_classes_is_refused(name: str, value: Any) -> None:
    spec = study(task={"kind": "addition"}, space={name: value})
    with pytest.raises(SpecRefused) as refused:
        checked_space(spec)
    [fault] = refused.value.faults
    assert fault.path == f"space.{name}"
    assert "addition has targets that are no classes; allowed is 'task'" in fault.message


def test_a_hinge_of_classes_is_allowed() -> None:
    spec = study(task={"kind": "digits"}, space={"training.loss": "squared_hinge"})
    space = checked_space(spec)
    assert isinstance(space, SearchSpace)


def test_documents_with_the_tasks_own_loss_are_what_they_were() -> None:
    document = TrainingSpec(learning_rate=0.01).model_dump(mode="json")
    assert not document.keys() & {"loss", "readout_penalty"}
