import tracemalloc
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy import stats

from search.tasks import DataSources
from search.tasks.synthetic import hashed
from search.tasks.synthetic.addition import Addition
from search.tasks.synthetic.generated import (
    TEST_ROWS,
    TRAINING_ROWS,
    VALIDATION_ROWS,
    Generated,
    GeneratedTask,
)
from tests.search.tasks.synthetic.splitmix import reference_word, splitmix64

# The smallest probability that a test of a distribution may see; seeds are fixed, so that a test
# that passes once always does.
RARE = 1e-3
ROWS = np.arange(20_000)


def test_the_reference_gives_the_published_words() -> None:
    # Of seed 1234567, as listed for splitmix64.c on rosettacode.org/wiki/Pseudo-random_numbers.
    words = splitmix64(1234567)
    assert [next(words) for _ in range(5)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 2**64 - 1),
    rows=st.lists(st.integers(0, 2**62), min_size=1, max_size=5),
    columns=st.integers(1, 4),
)
def test_words_are_those_of_the_rows_own_generators(
    seed: int, rows: list[int], columns: int
) -> None:
    expected = [[reference_word(seed, row, column) for column in range(columns)] for row in rows]
    assert hashed.words(seed, np.array(rows), columns).tolist() == expected


def test_uniform_numbers_are_uniform_and_below_one() -> None:
    for seed in (0, 1, 2**32 - 1):
        numbers = hashed.uniform(hashed.words(seed, ROWS, 5))
        assert numbers.dtype == np.float32
        assert numbers.min() >= 0
        for column in numbers.T:
            assert stats.kstest(column, "uniform").pvalue > RARE
    assert hashed.uniform(np.array([2**64 - 1], np.uint64))[0] == 1 - 2**-24
    assert hashed.uniform(np.array([0], np.uint64))[0] == 0


@pytest.mark.parametrize("bound", [1, 2, 8, 10, 97])
def test_whole_numbers_are_uniform_below_their_bound(bound: int) -> None:
    numbers = hashed.below(hashed.words(3, ROWS, 5), bound)
    counts = np.bincount(numbers.ravel(), minlength=bound)
    assert len(counts) == bound
    if bound > 1:
        assert stats.chisquare(counts).pvalue > RARE
    ends = hashed.below(np.array([0, 2**64 - 1], np.uint64), bound)
    assert ends.tolist() == [0, bound - 1]


def test_every_bit_is_fair() -> None:
    words = hashed.words(0, ROWS, 4).ravel()
    shares = [np.mean((words >> np.uint64(bit)) & np.uint64(1)) for bit in range(64)]
    # Five standard deviations.
    np.testing.assert_allclose(shares, 0.5, atol=5 * 0.5 / np.sqrt(len(words)))


def together(one: np.ndarray, other: np.ndarray) -> float:
    """The probability of so uneven a table of two columns of eight numbers, were they independent.

    Also sees one column being the other one, moved or turned round.
    """
    return stats.chisquare(np.bincount(8 * one + other, minlength=64)).pvalue


def test_columns_rows_and_seeds_are_independent_of_each_other() -> None:
    numbers = hashed.below(hashed.words(0, ROWS, 6), 8)
    for one, other in pairwise(numbers.T):
        assert together(one, other) > RARE
        # A column beside the next one of the next row.
        assert together(one[:-1], other[1:]) > RARE
    assert together(numbers[:-1, 0], numbers[1:, 0]) > RARE
    for seed in (1, 2, 2**31):
        assert together(numbers[:, 0], hashed.below(hashed.words(seed, ROWS, 1), 8)[:, 0]) > RARE


def own_numbers(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return rows[:, None, None].float(), rows


def test_the_splits_rows_are_disjoint_whatever_the_sizes() -> None:
    largest = 10_000_000
    for size in ("train_samples", "validation_samples", "test_samples"):
        with pytest.raises(ValidationError, match=size):
            GeneratedTask.model_validate({size: largest + 1})
        with pytest.raises(ValidationError, match=size):
            GeneratedTask.model_validate({size: 0})
    ranges = (TEST_ROWS, VALIDATION_ROWS, TRAINING_ROWS)
    assert all(len(rows) > largest for rows in ranges)
    assert all(before.stop <= after.start for before, after in pairwise(ranges))

    splits = GeneratedTask(train_samples=50, validation_samples=40, test_samples=30).splits(
        own_numbers
    )
    generator = torch.Generator().manual_seed(0)
    for split, rows in (
        (splits.test, TEST_ROWS),
        (splits.validation, VALIDATION_ROWS),
        (splits.train, TRAINING_ROWS),
    ):
        for order in (None, generator):
            named = torch.cat(list(split.batches(7, order)))
            assert len(named) == len(split)
            assert all(int(row) in rows for row in named)


@settings(max_examples=30, deadline=None)
@given(size=st.integers(1, 40), batch=st.integers(1, 50), spare=st.integers(0, 100))
def test_fresh_rows_stay_in_their_range_to_its_end(size: int, batch: int, spare: int) -> None:
    rows = range(10, 10 + size + spare)
    split = Generated(own_numbers, rows, size, fresh=True)
    for seed in range(20):
        batches = split.batches(batch, torch.Generator().manual_seed(seed))
        assert [len(named) for named in batches[:-1]] == [batch] * (len(batches) - 1)
        named = torch.cat(list(batches)).tolist()
        assert sorted(set(named)) == list(range(min(named), min(named) + size))
        assert min(named) in rows
        assert max(named) in rows


def test_an_epoch_has_the_same_samples_in_a_new_order_or_fresh_ones() -> None:
    generator = torch.Generator().manual_seed(0)

    def two_epochs(fresh: bool) -> list[list[int]]:
        split = Generated(own_numbers, TRAINING_ROWS, 100, fresh=fresh)
        return [torch.cat(list(split.batches(32, generator))).tolist() for _ in range(2)]

    first, second = two_epochs(fresh=False)
    assert first != second
    assert sorted(first) == sorted(second) == list(TRAINING_ROWS[:100])
    first, second = two_epochs(fresh=True)
    assert not set(first) & set(second)


def test_the_same_generator_gives_the_same_epoch_again() -> None:
    for fresh in (False, True):
        split = Generated(own_numbers, TRAINING_ROWS, 100, fresh=fresh)
        one, other = (
            split.batches(32, torch.Generator().manual_seed(4)) for _ in ("before", "resumed")
        )
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_evaluation_is_in_order_and_ends_with_the_rest() -> None:
    split = Generated(own_numbers, VALIDATION_ROWS, 10)
    batches = split.batches(4, None)
    assert [len(named) for named in batches] == [4, 4, 2]
    assert torch.cat(list(batches)).tolist() == list(VALIDATION_ROWS[:10])
    batch = split.take(batches[1])
    assert batch.y.tolist() == list(VALIDATION_ROWS[4:8])
    assert batch.lengths is None
    assert batch.counts == 4


def test_samples_are_made_for_a_device() -> None:
    split = Generated(own_numbers, TEST_ROWS, 3).to(torch.device("meta"))
    batch = split.take(split.batches(3, None)[0])
    assert (batch.x.device.type, batch.y.device.type) == ("meta", "meta")


def test_only_a_batch_is_ever_in_memory(tmp_path: Path) -> None:
    task = Addition(steps=750, train_samples=100_000, fresh=True)
    batch_bytes = 64 * 750 * 2 * 4
    tracemalloc.start()
    try:
        train = task.load(DataSources(cache=tmp_path)).train
        batches = train.batches(64, torch.Generator().manual_seed(0))
        for named in batches[:20]:
            assert train.take(named).x.nbytes == batch_bytes
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(len(named) for named in batches) == 100_000
    # A batch, its words and what hashing them takes; the whole split would be 600 MB. Numpy reports
    # its arrays to tracemalloc; of torch's there are the rows alone, 800 kB.
    assert peak < 15 * batch_bytes
    assert list(tmp_path.iterdir()) == []
