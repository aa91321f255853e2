"""Our count of cells says what Optuna's evaluator says, which reads every trial."""

import math
import warnings

import numpy as np
import optuna
import pytest
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)
from optuna.importance import PedAnovaImportanceEvaluator

from search.fronts.ped_anova import Grid
from search.spaces.dimension import Scalar

DISTRIBUTIONS: dict[str, BaseDistribution] = {
    "whole": IntDistribution(3, 40),
    "whole, by ratios": IntDistribution(1, 100, log=True),
    "whole, in steps": IntDistribution(8, 64, step=8),
    "whole, of thousands": IntDistribution(1, 5000),
    "a single one": IntDistribution(3, 3),
    "real": FloatDistribution(-1, 2),
    "real, by ratios": FloatDistribution(1e-5, 1e-1, log=True),
    "real, in steps": FloatDistribution(0, 1, step=0.25),
    "choice": CategoricalDistribution(("a", "b", "c")),
    "choice, true or false": CategoricalDistribution((True, False)),
    "a choice of one": CategoricalDistribution(("a",)),
}


def drawn(distribution: BaseDistribution, generator: np.random.Generator) -> Scalar:
    """A value, evenly on its scale."""
    share = float(generator.random())
    match distribution:
        case CategoricalDistribution(choices=choices):
            option = choices[int(share * len(choices))]
            assert isinstance(option, str | bool)
            return option
        case IntDistribution(log=True, low=low, high=high):
            return int(low * (high / low) ** share)
        case IntDistribution(low=low, high=high, step=step):
            return low + step * int(share * ((high - low) // step + 1))
        case FloatDistribution(log=True, low=low, high=high):
            return low * (high / low) ** share
        case FloatDistribution(low=low, high=high, step=None):
            return low + (high - low) * share
        case FloatDistribution(low=low, high=high, step=float(step)):
            return low + step * int(share * (round((high - low) / step) + 1))
        case _:
            raise AssertionError(distribution)


@pytest.mark.parametrize("count", [12, 60, 700])
@pytest.mark.parametrize("have", [1.0, 0.6])
def test_the_shares_are_those_of_optunas_evaluator(count: int, have: float) -> None:
    generator = np.random.default_rng(count)
    rows = [
        {
            name: drawn(distribution, generator)
            for name, distribution in DISTRIBUTIONS.items()
            if generator.random() < have
        }
        for _ in range(count)
    ]
    losses = np.array(
        [
            float(row.get("whole", 20)) + 9 * (row.get("choice") == "a") + generator.normal()
            for row in rows
        ]
    )
    share = max(0.1, 5 / count)
    study = optuna.create_study()
    study.add_trials(
        [
            optuna.trial.create_trial(
                params=row,
                distributions={name: DISTRIBUTIONS[name] for name in row},
                value=float(loss),
            )
            for row, loss in zip(rows, losses, strict=True)
        ]
    )
    with warnings.catch_warnings():
        # That few trials have a dimension.
        warnings.simplefilter("ignore")
        expected = PedAnovaImportanceEvaluator(target_quantile=share).evaluate(study)
    is_best = losses <= np.sort(losses)[math.ceil(share * count) - 1]
    found: dict[str, float] = {}
    for name, distribution in DISTRIBUTIONS.items():
        places = [place for place, row in enumerate(rows) if name in row]
        grid = Grid(distribution)
        cells = grid.cells([rows[place][name] for place in places])
        found[name] = grid.divergence(cells, is_best[places])
    whole = sum(expected.values())
    assert {name: value / sum(found.values()) for name, value in found.items()} == pytest.approx(
        {name: value / whole for name, value in expected.items()}, rel=1e-9
    )
