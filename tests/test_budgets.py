"""The files that have a budget are there."""

from pathlib import Path

from tests.budgets import DEFAULT_SECONDS, budgets

ROOT = Path(__file__).parents[1]


def test_every_named_file_exists_and_takes_longer_than_the_others() -> None:
    for file, seconds in budgets().items():
        assert (ROOT / file).is_file(), file
        assert seconds > DEFAULT_SECONDS, file
