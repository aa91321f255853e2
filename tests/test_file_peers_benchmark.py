"""At equal bytes of the file: who fits, who is chosen, and what is said of it."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from scipy import stats

from models.compression import to_torch
from tests.benchmarks.file_peers import stages
from tests.benchmarks.file_peers.after_training import LinearGru, dynamically
from tests.benchmarks.file_peers.candidates import (
    Candidate,
    dense_candidates,
    file_bytes,
    largest,
    structured_candidates,
)
from tests.benchmarks.file_peers.runs import Run, Runs, Stage
from tests.benchmarks.file_peers.setups import ORIGINAL_WIDTH, SETUPS
from tests.benchmarks.file_peers.stages import Started, trained
from tests.benchmarks.file_peers.verdict import Interval, paired, report, verdict

DIGITS = SETUPS["digits"]
QUICK = replace(
    DIGITS, train_samples=64, validation_samples=50, epochs=1, fine_tuning=2, quantised_epochs=1
)
LIMIT = 4096


@pytest.mark.parametrize("most", [1, 2, 7, 64])
def test_the_largest_that_fits_is_found(most: int) -> None:
    for boundary in range(most + 2):
        expected = min(boundary, most) or None
        assert largest(most, lambda n, boundary=boundary: n <= boundary) == expected


def test_dense_peers_are_the_widest_that_fit() -> None:
    found = list(dense_candidates(DIGITS, LIMIT))
    assert [one.bits for one in found] == [32, 8, 4]
    for one in found:
        wider = replace(one, width=one.width + 1)
        sizes = file_bytes(DIGITS, one), file_bytes(DIGITS, wider)
        assert sizes[0] is not None
        assert sizes[1] is not None
        assert sizes[0] <= LIMIT < sizes[1]


def test_structured_peers_have_the_largest_count_that_fits_and_save_bytes() -> None:
    found = list(
        itertools.takewhile(
            lambda one: one.family == "low_rank", structured_candidates(DIGITS, LIMIT)
        )
    )
    assert {one.bits for one in found} == {32, 8, 4}
    for one in found:
        size, more = (file_bytes(DIGITS, replace(one, count=one.count + extra)) for extra in (0, 1))
        plain = file_bytes(DIGITS, Candidate(family="dense", bits=one.bits, width=one.width))
        assert size is not None
        assert plain is not None
        assert size <= LIMIT
        assert size < plain
        assert more is None or more > min(LIMIT, plain - 1) or one.count == one.width


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate(family="dense", bits=4, width=9),
        Candidate(family="low_rank, tied, inputs too", bits=8, width=12, count=3),
    ],
    ids=lambda one: one.camp,
)
def test_a_trained_file_has_the_bytes_that_were_known_before(candidate: Candidate) -> None:
    started = Started(QUICK, 3)
    before = {n: t.clone() for n, t in started.network(candidate.width).state_dict().items()}
    found = trained(started, candidate, size=4, stage="judge", rate=1e-2).run
    assert found.bytes == file_bytes(QUICK, candidate)
    assert found.test is not None
    assert 0 <= found.test <= 1
    after = started.network(candidate.width).state_dict()
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert trained(started, candidate, size=4, stage="judge", rate=1e-2).run.test == found.test
    assert trained(started, candidate, size=4, stage="tune", rate=1e-2).run.test is None


def test_everybody_learns_from_one_original() -> None:
    started = Started(QUICK, 5)
    original = started.network(ORIGINAL_WIDTH)
    with torch.no_grad():
        expected = original(started.splits.train.x)
    torch.testing.assert_close(started.answers, expected)
    assert started.network(ORIGINAL_WIDTH) is started.network(ORIGINAL_WIDTH)


def test_libraries_quantize_the_same_network() -> None:
    network = QUICK.dense(10).build(seed=2).eval()
    x = Started(QUICK, 2).splits.validation
    linear = LinearGru(to_torch(network, QUICK.dense(10)))
    with torch.no_grad():
        torch.testing.assert_close(linear(x.x), network(x.x))
        expected = float((network(x.x).argmax(-1) == x.y).double().mean())
    made = dynamically(network, QUICK, 10)
    assert abs(made.accuracy(x) - expected) <= 2 / len(x)
    assert made.bytes > 0


def test_the_interval_is_that_of_a_paired_t_test() -> None:
    ours, theirs = [91.0, 94.5, 92.0, 96.0], [90.0, 95.0, 90.5, 93.0]
    found = paired(ours, theirs)
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.mean == pytest.approx(1.25)
    alone = paired([2.0], [1.0])
    assert alone.low < 0 < alone.high


def test_the_verdict_counts_what_is_beyond_the_interval() -> None:
    above, below, same = Interval(1, 0.5, 1.5), Interval(-1, -2, -0.1), Interval(0.1, -0.1, 0.3)
    reached = {2: above, 4: above, 8: above, 16: same, 32: same, 64: same}
    assert verdict(reached).endswith("is reached.")
    assert "above beyond the interval at 3 (2, 4, 8 KB), below at none" in verdict(reached)
    assert verdict({**reached, 32: below}).endswith("is **not reached**.")
    assert verdict({**reached, 8: same}).endswith("is **not reached**.")
    del reached[64]
    assert verdict(reached).endswith("and **not shown** at 1 (64 KB).")


def test_validation_chooses_and_test_does_not(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.jsonl")
    for seed in (1, 2):
        runs.add(run("dense", 8, seed, validation=0.90, test=0.99))
        runs.add(run("dense", 4, seed, validation=0.95, test=0.80 + seed / 100))
        runs.add(run("low_rank", 8, seed, validation=0.93, test=0.91 + seed / 100))
        runs.add(run("low_rank", 4, seed, validation=0.92, test=0.999))
    again = Runs(tmp_path / "runs.jsonl")
    assert again.all == runs.all
    text = report(again)
    assert "| dense int4, n 10: 2,000 | low_rank int8, n 10, count 3: 2,000 |" in text
    assert "| 81.50 | 92.50 | +11.00 [+11.00, +11.00] |" in text
    assert "**not reached**" in text


def test_finalists_are_all_dense_ones_and_the_best_structured_ones(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.jsonl")
    for place, bits in enumerate((32, 8, 4)):
        runs.add(run("dense", bits, 0, validation=0.1, stage="tune"))
        runs.add(run("low_rank", bits, 0, validation=0.9 - place / 10, stage="tune"))
    found = stages.finalists(runs, "digits", 2)
    assert {(one.family, one.bits) for one in found} == {
        *(("dense", bits) for bits in (32, 8, 4)),
        ("low_rank", 32),
        ("low_rank", 8),
    }
    slower = replace(runs.all[0], rate=1e-3, validation=0.2)
    runs.add(slower)
    assert runs.rate_of("digits", 2, slower.candidate) == 1e-3


def run(
    family: str,
    bits: int,
    seed: int,
    *,
    validation: float,
    test: float | None = None,
    stage: Stage = "judge",
) -> Run:
    return Run(
        task="digits",
        size=2,
        stage=stage,
        family=family,
        bits=bits,
        width=10,
        count=0 if family == "dense" else 3,
        seed=seed,
        rate=1e-2,
        bytes=2000,
        parameters=500,
        validation=validation,
        validation_loss=0.5,
        test=test,
        epoch=1,
        seconds=1.0,
    )
