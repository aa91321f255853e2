from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from search.tasks import Batch, DataSources, Samples
from search.tasks.synthetic.addition import Addition
from search.tasks.synthetic.generated import TEST_ROWS
from tests.search.tasks.synthetic.splitmix import reference_word

NOWHERE = DataSources(cache=Path("nowhere"))
RARE = 1e-3


def whole(samples: Samples) -> Batch:
    (named,) = samples.batches(len(samples), None)
    return samples.take(named)


def places(x: torch.Tensor) -> np.ndarray:
    """The steps of the two markers, [B, 2]."""
    assert ((x[:, :, 1] == 0) | (x[:, :, 1] == 1)).all()
    sample, step = torch.nonzero(x[:, :, 1], as_tuple=True)
    assert (torch.bincount(sample, minlength=len(x)) == 2).all()
    return step.view(-1, 2).numpy()


@settings(max_examples=30, deadline=None)
@given(
    steps=st.integers(2, 40),
    markers=st.sampled_from(["halves", "anywhere"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_target_is_the_sum_of_two_marked_numbers(
    steps: int, markers: Literal["halves", "anywhere"], seed: int
) -> None:
    task = Addition(steps=steps, markers=markers, seed=seed, test_samples=50)
    batch = whole(task.load(NOWHERE).test)
    assert batch.x.shape == (50, steps, 2)
    assert (batch.x.dtype, batch.y.dtype) == (torch.float32, torch.float32)
    assert batch.x[:, :, 0].min() >= 0
    assert batch.x[:, :, 0].max() < 1
    torch.testing.assert_close(batch.y[:, 0], batch.x.prod(dim=2).sum(dim=1))
    if markers == "halves":
        first, second = places(batch.x).T
        assert (first < steps // 2).all()
        assert (second >= steps // 2).all()


def test_values_of_a_sample_are_frozen() -> None:
    batch = whole(Addition(steps=3, seed=5, test_samples=4).load(NOWHERE).test)
    for sample, row in enumerate(TEST_ROWS[:4]):
        numbers = [(reference_word(5, row, 2 + step) >> 40) / 2**24 for step in range(3)]
        assert batch.x[sample, :, 0].tolist() == numbers
        second = 1 + (reference_word(5, row, 1) >> 32) * 2 // 2**32
        assert places(batch.x[sample : sample + 1]).tolist() == [[0, second]]


def test_markers_are_uniform_over_the_places_allowed() -> None:
    def counts(task: Addition) -> np.ndarray:
        first, second = places(whole(task.load(NOWHERE).test).x).T
        return np.bincount(5 * first + second, minlength=25).reshape(5, 5)

    halves = counts(Addition(steps=5, test_samples=6_000))
    assert halves[:2, 2:].sum() == 6_000
    assert stats.chisquare(halves[:2, 2:].ravel()).pvalue > RARE
    anywhere = counts(Addition(steps=5, markers="anywhere", test_samples=6_000))
    upper = anywhere[np.triu_indices(5, k=1)]
    assert upper.sum() == 6_000
    assert stats.chisquare(upper).pvalue > RARE


def test_test_markers_may_follow_another_rule() -> None:
    task = Addition(steps=10, test_markers="anywhere")
    splits = task.load(NOWHERE)
    for split in (splits.train, splits.validation):
        assert (places(whole(split).x)[:, 0] < 5).all()
        assert (places(whole(split).x)[:, 1] >= 5).all()
    shifted = places(whole(splits.test).x)
    assert (shifted[:, 1] < 5).any()
    assert (shifted[:, 0] >= 5).any()


@pytest.mark.parametrize("markers", ["halves", "anywhere"])
def test_always_answering_one_gets_the_baseline(markers: Literal["halves", "anywhere"]) -> None:
    task = Addition(steps=20, markers=markers, test_samples=40_000)
    test = task.load(NOWHERE).test
    meter = task.meter()
    for named in test.batches(7_000, None):
        target = test.take(named).y
        meter.add(torch.ones_like(target), target)
    values = meter.values()
    # Standard errors are 0.001: the variance of (a + b - 1)^2 is 7/180.
    assert task.metric.baseline == 1 / 6
    assert values["mse"] == pytest.approx(1 / 6, abs=0.004)
    # The sum's density is a triangle of height 1 at 1.
    assert values["accuracy_0_04"] == pytest.approx(2 * 0.04 - 0.04**2, abs=0.005)


def test_the_meter_adds_batches_up_sample_by_sample() -> None:
    meter = Addition().meter()
    meter.add(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.03], [1.0]]))
    meter.add(torch.tensor([[0.5]]), torch.tensor([[0.0]]))
    values = meter.values()
    assert values["mse"] == pytest.approx((0.03**2 + 1 + 0.25) / 3)
    assert values["accuracy_0_04"] == pytest.approx(1 / 3)


def test_the_loss_is_the_metric_of_a_batch() -> None:
    task = Addition(steps=8)
    target = whole(task.load(NOWHERE).validation).y
    output = torch.rand(target.shape, generator=torch.Generator().manual_seed(0))
    meter = task.meter()
    meter.add(output, target)
    assert task.loss(output, target).item() == pytest.approx(meter.values()["mse"], rel=1e-5)


@pytest.mark.parametrize("steps", [1, 10_001])
def test_too_few_or_too_many_steps_are_refused(steps: int) -> None:
    with pytest.raises(ValidationError, match="steps"):
        Addition(steps=steps)
