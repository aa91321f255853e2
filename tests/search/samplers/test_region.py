"""Searches for a region of interest, replayed on the digits' table."""

import pytest

from search.documents.region import Region
from search.samplers import FreezeThaw, KnownCost
from tests.benchmarks.search_efficiency.pausing import PausingReplay
from tests.benchmarks.search_efficiency.replay import Replay, State
from tests.benchmarks.search_efficiency.spaces import DIGITS
from tests.benchmarks.search_efficiency.studies import StudySampler
from tests.benchmarks.search_efficiency.table import Table, read

SEED = 7
STARTUP = 4
FAST = Region({"quality": ("at_least", 0.93), "throughput": ("at_least", 150_000.0)})
ACCURATE = Region({"quality": ("at_least", 0.95)})


@pytest.fixture(scope="module")
def table() -> Table:
    return read(DIGITS)


def inside(replay: Replay, table: Table, region: Region) -> int:
    """How many complete trials lie in a region."""
    least = {name: bound for name, (_, bound) in region.ends.items()}
    return sum(
        trial.state is State.COMPLETE
        and trial.accuracy[-1] >= least["quality"]
        and table.samples_per_second[trial.configuration.structure] >= least.get("throughput", 0)
        for trial in replay.trials
    )


def test_freeze_thaw_completes_more_trials_inside_a_region_than_without_one(table: Table) -> None:
    found: list[int] = []
    for region in (Region(), FAST):
        sampler = FreezeThaw(startup_trials=STARTUP)
        study = StudySampler(table, sampler, seed=SEED, region=region)
        replay = PausingReplay(table, study, seed=SEED)
        replay.run(1, 5 * table.epochs, None, 0)
        found.append(inside(replay, table, FAST))
    without, with_it = found
    assert with_it >= without + 2


def test_known_cost_completes_more_trials_inside_a_region_than_without_one(table: Table) -> None:
    found: list[int] = []
    for region in (Region(), ACCURATE):
        sampler = KnownCost(startup_trials=STARTUP)
        study = StudySampler(table, sampler, seed=SEED, region=region)
        replay = Replay(table, study, None, seed=SEED)
        replay.run(1, 16 * table.epochs, None, 0)
        found.append(inside(replay, table, ACCURATE))
    without, with_it = found
    assert with_it >= without + 2


def test_a_region_that_nothing_reaches_does_not_lose_the_search(table: Table) -> None:
    nowhere = Region({"quality": ("at_least", 0.9999), "parameters": ("at_most", 1.0)})
    study = StudySampler(table, KnownCost(startup_trials=STARTUP), seed=SEED, region=nowhere)
    replay = Replay(table, study, None, seed=SEED)
    replay.run(1, 16 * table.epochs, None, 0)
    whole = Replay(
        table, StudySampler(table, KnownCost(startup_trials=STARTUP), seed=SEED), None, seed=SEED
    )
    whole.run(1, 16 * table.epochs, None, 0)
    volumes = [one.progress[-1].volumes["M1"] for one in (replay, whole)]
    assert volumes[0] > 0.9 * volumes[1]
