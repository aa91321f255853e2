"""Contestants of the comparison with peers are what the tables say that they are."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from search.tasks import Split, Splits
from tests.benchmarks.peers import rivals
from tests.benchmarks.peers.contestant import Contestant, Given, Replaced, numbers_in, others_in
from tests.benchmarks.peers.report import report
from tests.benchmarks.peers.runs import CONTESTANTS, Runs, splits_of, train_all
from tests.benchmarks.peers.settings import SETTINGS, Setting
from tests.benchmarks.peers.training import answers_of, fit

RECURRENT = SETTINGS["digits-lstm"]
PERCEPTRON = SETTINGS["digits-mlp"]
HERE = list(filter(rivals.is_installed, CONTESTANTS))


def given_by(setting: Setting, share: float = 0.1) -> Given:
    original = setting.original(0)
    entries = sum(weight.numel() for weight in setting.weights(original).values())
    train = splits_of(setting.name).train
    return Given(
        setting=setting, original=original, numbers=int(share * entries), train=train, seed=0
    )


def made(name: str, given: Given) -> Contestant:
    contestant = CONTESTANTS[name](given)
    if contestant is None:
        pytest.skip(f"{name} takes no part in {given.setting.name}")
    contestant.before_epoch(1.0)
    return contestant


@pytest.mark.parametrize(
    "setting",
    [pytest.param(RECURRENT, marks=pytest.mark.nightly), PERCEPTRON],
    ids=lambda setting: setting.name,
)
@pytest.mark.parametrize("name", HERE)
def test_no_contestant_has_more_numbers_than_allowed_and_all_leave_the_original(
    name: str, setting: Setting
) -> None:
    given = given_by(setting)
    before = copy.deepcopy(given.original.state_dict())
    contestant = made(name, given)
    if name == "small dense, as many in all":
        assert contestant.numbers() > given.numbers
        assert contestant.numbers() + contestant.others <= given.numbers + others_in(given)
    else:
        assert 0.6 * given.numbers < contestant.numbers() <= given.numbers + 1
    if "pruned" not in name:
        assert contestant.numbers() + contestant.others == numbers_in(contestant.module)
    torch.testing.assert_close(given.original.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("name", HERE)
def test_all_of_a_contestant_learns(name: str) -> None:
    given = given_by(RECURRENT)
    module = made(name, given).module
    module(given.train.x[:8]).square().sum().backward()
    still = [key for key, p in module.named_parameters() if p.grad is None or not p.grad.any()]
    assert not still


def test_made_matrices_are_those_that_run() -> None:
    given = given_by(RECURRENT)
    weight = given.original.get_parameter("stack.weight_hh_l0")
    x = given.train.x[:4]
    expected = given.original(x)
    twice = _Twice(weight)
    module = Replaced(copy.deepcopy(given.original), {"stack.weight_hh_l0": twice})
    torch.testing.assert_close(module(x), expected)
    with torch.no_grad():
        twice.part.zero_()
    assert not torch.allclose(module(x), expected)


def test_the_best_epoch_is_kept_and_equal_seeds_give_equal_numbers() -> None:
    splits = splits_of(RECURRENT.name)
    few = Splits(*(Split(part.x[:96], part.y[:96]) for part in (splits.train,) * 3))
    found = [
        fit(
            module,
            few,
            batch_size=RECURRENT.batch_size,
            epochs=3,
            rate=1e-2,
            seed=4,
            answers=answers_of(module, few.train),
        )
        for module in (RECURRENT.original(1), RECURRENT.original(1))
    ]
    assert found[0] == found[1]
    assert found[0].validation == found[0].test


def test_runs_are_kept_and_not_trained_again(tmp_path: Path) -> None:
    quick = Setting(**{**vars(PERCEPTRON), "epochs": 1, "fine_tuning": 1, "rates": (1e-3, 2e-3)})
    names = ["ours: low_rank", "truncated SVD"]
    runs = Runs(tmp_path / "runs.jsonl")
    first = [run.key[2:] for run in train_all(runs, quick, 0.1, 0, names)]
    assert first == [
        ("original", 0, 3e-3),
        *((name, 0, rate) for name in names for rate in (1e-3, 2e-3)),
    ]
    again = Runs(tmp_path / "runs.jsonl")
    assert again.all == runs.all
    assert not list(train_all(again, quick, 0.1, 0, names))
    assert len(list(train_all(again, quick, 0.1, 1, names))) == 3
    text = report(again)
    assert "### digits-mlp: 0.1 of 32,768 numbers" in text
    assert "the best rival, truncated SVD, " in text


class _Twice(nn.Module):
    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.part = nn.Parameter(weight.detach() / 2)

    def forward(self) -> torch.Tensor:
        return 2 * self.part
