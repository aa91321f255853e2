import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from models.architectures import Gru
from models.model import ModelSpec
from models.parametrizations import Dense
from models.spec import Signature
from search.tasks import Batch, DataSources, Samples, Task
from search.tasks.samples import IGNORED
from search.tasks.synthetic.copy_tail import CopyTail
from search.tasks.synthetic.copy_task import Copy
from search.tasks.synthetic.copy_variable_lag import CopyVariableLag
from search.tasks.synthetic.copy_variable_length import CopyVariableLength
from search.tasks.synthetic.generated import TEST_ROWS
from tests.search.tasks.synthetic.splitmix import reference_word

NOWHERE = DataSources(cache=Path("nowhere"))
RARE = 1e-3
CERTAIN = 100.0

LAGGED = (Copy, CopyVariableLength, CopyVariableLag)


def whole(samples: Samples) -> Batch:
    (named,) = samples.batches(len(samples), None)
    return samples.take(named)


def shown(batch: Batch) -> np.ndarray:
    """The symbols of one-hot inputs, [B, T]."""
    assert batch.x.dtype == torch.float32
    assert ((batch.x == 0) | (batch.x == 1)).all()
    assert (batch.x.sum(dim=2) == 1).all()
    return batch.x.argmax(dim=2).numpy()


def repeated(symbols: list[int], *, blank: int, signal: int) -> list[int]:
    """What a reader answers that keeps a queue: blank, and after the signal what it was shown."""
    queue: list[int] = []
    answers: list[int] = []
    recalling = False
    for symbol in symbols:
        answers.append(queue.pop(0) if recalling and queue else blank)
        if symbol == signal:
            recalling = True
        elif symbol != blank:
            queue.append(symbol)
    assert recalling
    assert not queue
    return answers


@settings(max_examples=40, deadline=None)
@given(
    kind=st.sampled_from(LAGGED),
    lag=st.integers(1, 30),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_target_is_the_data_shown_repeated_after_the_signal(
    kind: type[Copy], lag: int, seed: int
) -> None:
    task = kind(lag=lag, seed=seed, test_samples=20)
    batch = whole(task.load(NOWHERE).test)
    signature = task.signature()
    assert signature == Signature(
        input_size=10, sequence_length=lag + 20, output_size=10, output_steps="every"
    )
    assert batch.x.shape == (20, lag + 20, 10)
    assert batch.y.dtype == torch.int64
    for symbols, target in zip(shown(batch).tolist(), batch.y.tolist(), strict=True):
        assert target == repeated(symbols, blank=8, signal=9)


@settings(max_examples=20, deadline=None)
@given(steps=st.integers(21, 60), seed=st.integers(0, 2**32 - 1))
def test_the_tail_alone_counts_and_repeats_the_data(steps: int, seed: int) -> None:
    task = CopyTail(steps=steps, seed=seed, test_samples=20)
    batch = whole(task.load(NOWHERE).test)
    assert task.signature() == Signature(
        input_size=12, sequence_length=steps, output_size=12, output_steps="every"
    )
    for symbols, target in zip(shown(batch).tolist(), batch.y.tolist(), strict=True):
        assert symbols[steps - 11 :] == [0] + 10 * [1]
        assert symbols[10 : steps - 11] == (steps - 21) * [1]
        assert target[:-10] == (steps - 10) * [IGNORED]
        assert target[-10:] == repeated(symbols, blank=1, signal=0)[-10:] == symbols[:10]


def test_the_papers_tail_has_its_delimiter_at_step_89_and_a_lag_of_90() -> None:
    batch = whole(CopyTail().load(NOWHERE).test)
    symbols = shown(batch)
    assert symbols.shape[1] == 100
    assert (symbols[:, 89] == 0).all()
    assert (symbols[:, 10:89] == 1).all()
    assert (batch.y.numpy()[:, 90:] == symbols[:, :10]).all()


def test_a_fixed_lag_has_its_signal_at_t_plus_9() -> None:
    symbols = shown(whole(Copy(lag=30).load(NOWHERE).test))
    assert (symbols[:, 39] == 9).all()
    assert (symbols[:, 10:39] == 8).all()
    assert (symbols[:, 40:] == 8).all()


def test_data_is_uniform_over_its_symbols_at_each_step() -> None:
    for task, first, count in ((Copy(lag=1), 0, 8), (CopyTail(steps=21), 2, 10)):
        data = shown(whole(task.load(NOWHERE).validation))[:, :10] - first
        for column in data.T:
            counts = np.bincount(column, minlength=count)
            assert len(counts) == count
            assert stats.chisquare(counts).pvalue > RARE


def test_lengths_are_uniform_from_1_to_10_and_move_the_signal() -> None:
    task = CopyVariableLength(lag=7, test_samples=5_000)
    symbols = shown(whole(task.load(NOWHERE).test))
    lengths = (symbols < 8).sum(axis=1)
    assert ((symbols < 8) == (np.arange(27) < lengths[:, None])).all()
    assert ((symbols == 9) == (np.arange(27) == lengths[:, None] + 7 - 1)).all()
    counts = np.bincount(lengths)
    assert counts[0] == 0
    assert len(counts) == 11
    assert stats.chisquare(counts[1:]).pvalue > RARE


@pytest.mark.parametrize("shortest", [1, 2, 12])
def test_lags_are_uniform_from_the_shortest_to_the_longest(shortest: int) -> None:
    task = CopyVariableLag(lag=12, shortest_lag=shortest, test_samples=5_000)
    symbols = shown(whole(task.load(NOWHERE).test))
    assert ((symbols == 9).sum(axis=1) == 1).all()
    lags = symbols.argmax(axis=1) - 9
    counts = np.bincount(lags)
    assert counts[:shortest].sum() == 0
    assert len(counts) == 13
    if shortest < 12:
        assert stats.chisquare(counts[shortest:]).pvalue > RARE


def test_values_of_a_sample_are_frozen() -> None:
    def reference(row: int, column: int, bound: int) -> int:
        return (reference_word(5, row, column) >> 32) * bound // 2**32

    test = whole(Copy(lag=1, seed=5, test_samples=3).load(NOWHERE).test)
    expected = [[reference(row, column, 8) for column in range(10)] for row in TEST_ROWS[:3]]
    assert shown(test)[:, :10].tolist() == expected
    test = whole(CopyVariableLag(lag=6, seed=5, test_samples=3).load(NOWHERE).test)
    lags = [1 + reference(row, 10, 6) for row in TEST_ROWS[:3]]
    assert (shown(test).argmax(axis=1) - 9).tolist() == lags


def memoryless(target: torch.Tensor, *, size: int, data: range) -> torch.Tensor:
    """Logits that know when data is to be repeated, and guess among all of it then."""
    logits = torch.full((*target.shape, size), -CERTAIN)
    recalled = (target >= data.start) & (target < data.stop)
    logits[..., data.start : data.stop] = torch.where(recalled, 0.0, -CERTAIN)[..., None]
    blank = torch.where(recalled, -CERTAIN, 0.0)
    logits[..., 8 if data.start == 0 else 1] = blank
    return logits


@pytest.mark.parametrize(
    ("task", "baseline", "tolerance"),
    [
        (Copy(lag=100), 0.1733, 1e-6),
        (Copy(lag=200), 0.0945, 1e-6),
        (Copy(lag=300), 0.0650, 1e-6),
        (Copy(lag=500), 0.0400, 1e-6),
        # The mean of a thousand lengths is itself random, with a standard error of 1.7 percent.
        (CopyVariableLength(), 0.0953, 0.05),
        (CopyVariableLag(), 0.1733, 1e-6),
    ],
    ids=lambda value: f"{value.kind}-{value.lag}" if isinstance(value, LAGGED) else "",
)
def test_guessing_at_the_right_time_gets_the_baseline(
    task: Task, baseline: float, tolerance: float
) -> None:
    assert task.metric.baseline == pytest.approx(baseline, abs=5e-5)
    test = task.load(NOWHERE).test
    meter = task.meter()
    for named in test.batches(300, None):
        target = test.take(named).y
        meter.add(memoryless(target, size=10, data=range(8)), target)
    values = meter.values()
    assert values["cross_entropy"] == pytest.approx(task.metric.baseline, rel=tolerance)
    # Of equal logits the first symbol's counts; it is one of eight.
    assert values["recall_accuracy"] == pytest.approx(1 / 8, abs=0.02)


def test_guessing_the_tail_gets_ln_10_and_a_tenth() -> None:
    task = CopyTail()
    target = whole(task.load(NOWHERE).test).y
    output = memoryless(target, size=12, data=range(2, 12))
    meter = task.meter()
    meter.add(output, target)
    assert task.metric.baseline == 0.1
    assert meter.values()["accuracy"] == pytest.approx(0.1, abs=0.02)
    assert meter.values()["cross_entropy"] == pytest.approx(math.log(10), rel=1e-6)
    assert task.loss(output, target).item() == pytest.approx(math.log(10), rel=1e-6)


@pytest.mark.parametrize(
    "task", [Copy(lag=5), CopyVariableLength(lag=5), CopyVariableLag(lag=5), CopyTail(steps=25)]
)
def test_perfect_answers_are_perfect_and_steps_that_do_not_count_change_nothing(
    task: Task,
) -> None:
    target = whole(task.load(NOWHERE).test).y
    counted = target != IGNORED
    size = task.signature().output_size
    output = CERTAIN * torch.nn.functional.one_hot(target.where(counted, 0), size).float()
    noise = torch.randn(output.shape, generator=torch.Generator().manual_seed(0))
    output = torch.where(counted[..., None], output, noise)
    meter = task.meter()
    meter.add(output, target)
    values = dict(meter.values())
    assert values.pop("cross_entropy") == pytest.approx(0, abs=1e-6)
    assert list(values.values()) == [1.0]
    assert task.loss(output, target).item() == pytest.approx(0, abs=1e-6)


def test_the_meters_batches_add_up_to_the_loss_of_all() -> None:
    for task in (CopyVariableLength(lag=5), CopyTail(steps=25)):
        validation = task.load(NOWHERE).validation
        target = whole(validation).y
        size = task.signature().output_size
        output = torch.randn((*target.shape, size), generator=torch.Generator().manual_seed(0))
        meter = task.meter()
        for rows in torch.split(torch.arange(len(target)), 300):
            meter.add(output[rows], target[rows])
        values = meter.values()
        assert values["cross_entropy"] == pytest.approx(task.loss(output, target).item(), rel=1e-5)
        data = (target != IGNORED) & (target != (8 if size == 10 else 1))
        hits = (output.argmax(dim=2)[data] == target[data]).double().mean().item()
        values = dict(values)
        del values["cross_entropy"]
        assert list(values.values()) == [pytest.approx(hits)]


def test_lags_and_lengths_that_cannot_be_are_refused() -> None:
    for kind in LAGGED:
        with pytest.raises(ValidationError, match="lag"):
            kind(lag=0)
    with pytest.raises(ValidationError, match=r"shortest_lag 7 .* allowed is 1 to lag \(6\)"):
        CopyVariableLag(lag=6, shortest_lag=7)
    with pytest.raises(ValidationError, match="greater than or equal to 21"):
        CopyTail(steps=20)


def test_a_gru_learns_to_remember() -> None:
    task = Copy(lag=5, train_samples=64 * 1_000, fresh=True)
    splits = task.load(NOWHERE)
    model = ModelSpec(
        architecture=Gru(hidden_size=48), parametrization=Dense(), signature=task.signature()
    ).build(seed=0)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for named in splits.train.batches(64, torch.Generator().manual_seed(0)):
        batch = splits.train.take(named)
        optimizer.zero_grad()
        task.loss(model(batch.x), batch.y).backward()
        optimizer.step()
    meter, validation = task.meter(), whole(splits.validation)
    with torch.no_grad():
        meter.add(model(validation.x), validation.y)
    values = meter.values()
    assert values["cross_entropy"] < 0.9 * task.metric.baseline
    assert values["recall_accuracy"] > 0.25
