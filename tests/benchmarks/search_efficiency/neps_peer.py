"""NePS' PriMO without priors where it is installed: MO-ASHA first, then a process on a scalar.

PriMO (Basu et al. 2025) spends as many full trainings' epochs as there are dimensions on MO-ASHA
over random configurations, then trains to the end what a Gaussian process on a weighted sum of all
objectives proposes. Here the first stage is `search.stopping.MoAsha`, which stops instead of
promoting, because replays resume nothing; the second is NePS' own code. Two things are done for it:
NePS 0.17.0 draws the sum's weights once per process, which leads to one point of the front, and
here they are drawn for every proposal; and objectives, which it adds as they are, are scaled to
what was seen.
"""

import importlib
import importlib.util
import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from search.spaces import ChoiceDimension, Dimension
from tests.benchmarks.search_efficiency.peers import Observed, PeerSpace, to_unit
from tests.benchmarks.search_efficiency.replay import Rule, Trial

_EPOCHS = "epochs"
_ALL = 2
"""Of the two fidelities that NePS is told of: it wants a range, and is told of the upper alone."""


def is_installed() -> bool:
    """Whether the peer can take part."""
    return importlib.util.find_spec("neps") is not None


class Primo:
    """Proposals of one search.

    Args:
        space: what is searched.
        seed: of everything that is drawn.
        epochs: of a full training.
    """

    def __init__(self, space: PeerSpace, seed: int, *, epochs: int = 1) -> None:
        self._space, self._epochs = space, epochs
        self._random = np.random.default_rng(seed)

    def propose(self, observed: Sequence[Observed]) -> int:
        """A random row in the first stage, then what NePS proposes."""
        finished = [each for each in observed if each.is_finished]
        if not finished or is_first_stage(
            self._space, sum(each.epochs for each in observed), self._epochs
        ):
            return int(self._random.integers(len(self._space.values)))
        points = np.column_stack(
            [[each.error for each in finished], self._space.costs[[e.row for e in finished]]]
        )
        return self._second_stage([each.row for each in finished], to_unit(points))

    def refuse(self) -> None:
        """Nothing: the next proposal has other weights."""

    def _second_stage(self, rows: Sequence[int], values: np.ndarray) -> int:
        """What NePS proposes after full trainings with these values `[n, 1 + C]`, minimised."""
        # NePS draws from the global generators.
        seed = int(self._random.integers(2**31))
        torch.manual_seed(seed)
        np.random.seed(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            neps = cast(Any, importlib.import_module("neps"))
            algorithms = cast(Any, importlib.import_module("neps.optimizers.algorithms"))
            found = neps.AskAndTell(
                algorithms.primo(self._their_space(), prior_centers={}, initial_design_size=1)
            )
            for number, (row, value) in enumerate(zip(rows, values.tolist(), strict=True), start=1):
                found.tell_custom(
                    config_id=str(number),
                    config={**self._filled(row), _EPOCHS: _ALL},
                    result={"objective_to_minimize": value},
                )
            proposed = dict(found.ask().config)
        del proposed[_EPOCHS]
        return self._space.row(proposed)

    def _filled(self, row: int) -> dict[str, Any]:
        """A row's values, and the first one of each dimension that it lacks: NePS knows no tree."""
        own = self._space.values[row]
        return {
            name: own.get(name, _first(dimension))
            for name, dimension in self._space.dimensions.items()
        }

    def _their_space(self) -> Any:
        theirs = cast(Any, importlib.import_module("neps.space"))
        dimensions: dict[str, Any] = {
            name: theirs.HPOCategorical(list(each.options))
            if isinstance(each, ChoiceDimension)
            else theirs.HPOInteger(int(each.low), int(each.high))
            for name, each in self._space.dimensions.items()
        }
        fidelity = theirs.HPOInteger(1, _ALL, is_fidelity=True)
        return theirs.SearchSpace({**dimensions, _EPOCHS: fidelity})


class FirstStage:
    """A rule for as long as PriMO is in its first stage.

    Args:
        rule: MO-ASHA.
        space: what is searched.
        epochs: of a full training.
    """

    def __init__(self, rule: Rule, space: PeerSpace, *, epochs: int) -> None:
        self._rule, self._space, self._epochs = rule, space, epochs

    def stops(self, trials: Sequence[Trial], trial: Trial) -> bool:
        """Ask the rule, or none."""
        trained = sum(len(each.accuracy) for each in trials)
        first = is_first_stage(self._space, trained, self._epochs)
        return first and self._rule.stops(trials, trial)


def is_first_stage(space: PeerSpace, trained: int, epochs: int) -> bool:
    """Whether fewer epochs were trained than those of one full training per dimension."""
    return trained < len(space.dimensions) * epochs


def _first(dimension: Dimension) -> Any:
    return dimension.options[0] if isinstance(dimension, ChoiceDimension) else int(dimension.low)
