"""Studies under random SIGKILLs, in short; `python -m tests.chaos` goes on for as long as asked."""

import tempfile
from pathlib import Path

import pytest

from tests.chaos.postgres import MortalPostgres
from tests.chaos.run import run

pytestmark = pytest.mark.slow

FAULTS = {"cut", "answers lost", "requests doubled"}


def test_random_kills_lose_and_double_nothing(tmp_path: Path) -> None:
    summary = run(tmp_path, seconds=8, seed=1, trials=12)
    assert summary.outcomes.total() >= 12
    assert summary.strikes, "nothing was struck"


def test_random_kills_of_the_database_too_lose_and_double_nothing(tmp_path: Path) -> None:
    postgres = MortalPostgres(Path(tempfile.mkdtemp(prefix="reflectory-postgres-")))
    try:
        summary = run(tmp_path, seconds=30, seed=2, trials=60, postgres=postgres, every=True)
    finally:
        postgres.stop()
    assert summary.outcomes.total() >= 60
    assert summary.strikes["database away"] > 0
    assert {kind.partition(":")[0] for kind in summary.requests_struck} == FAULTS
