"""What each next step of a search is worth: to begin a configuration, or to go on with a trial.

Trials pause at rungs and may go on at any later time. An option is a configuration that was not
begun, or a trial that waits at a rung; its index is the hypervolume that it is expected to add per
price, see Note [Index of an option]. It is all arrays: a replay drives it as a study does.

Letters: N trials, M configurations, R rungs, C cost objectives, D features. Errors are natural
logarithms, costs are minimised, see `search.samplers.modelling.acquisition`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from search.samplers.modelling.acquisition import Front, Reference, references, undominated
from search.samplers.modelling.blas_threads import one_blas_thread
from search.samplers.modelling.gaussian_process import Array
from search.samplers.pausing.final_errors import (
    NOTHING,
    FinalErrors,
    Kernel,
    Look,
    Seen,
    fit_scales,
)
from search.samplers.pausing.learning_curves import fit_curves
from search.samplers.pausing.option_index import Gains, Options

MOST_FITTED = 400
"""Trials that the process knows: its time grows with their cube."""

_MOST_SCALED = 150
"""Trials that its scales are fitted to."""

_DRAWS = 4
"""How often the ends of running trials are drawn; in pairs that mirror each other."""

_USUAL_DROP = 1.5
"""By how much a final log error is below the baseline's, before anything is known."""

_HALVINGS = 12
"""How often the range in which a threshold lies is halved."""

_ABOVE_BASELINE, _BELOW_BEST = 2.0, 3.0
"""Where thresholds are searched: up to so far beyond the baseline's and the lowest log error."""


class Standing(IntEnum):
    """What can be done with a trial."""

    OVER = 0
    """Ended before its last epoch: evidence only."""
    FINISHED = 1
    """Trained to the end: on the front."""
    PAUSED = 2
    """An option at the rung that it has reached."""
    RUNNING = 3
    """Trains to a rung."""
    WAITING = 4
    """Chosen and not begun: an option at epoch 0."""


@dataclass(frozen=True, kw_only=True)
class Begun:
    """Trials."""

    features: Array
    """`[N, D]`."""
    costs: Array
    """`[N, C]`."""
    families: NDArray[np.int64]
    """`[N]`: whose curves are alike."""
    errors: Array
    """`[N, R]`, logarithms of the best error so far at each rung, NaN where it was not reached. A
    trial that failed for its configuration's sake has the baseline's at all of them."""
    standing: NDArray[np.int64]
    """`[N]`, of `Standing`."""
    until: NDArray[np.int64]
    """`[N]`, index of the rung that a running trial trains to; -1 of others."""
    price: Array
    """`[N]`, of one epoch."""
    chance: Array
    """`[N]`, in (0, 1], that it trains at all; gains are multiplied by it."""
    prior: Array
    """`[N]`, by how much the final log error is expected to lie off the others', beforehand."""


@dataclass(frozen=True, kw_only=True)
class Fresh:
    """Configurations that were not chosen yet; see `Begun`."""

    features: Array
    """`[M, D]`."""
    costs: Array
    """`[M, C]`."""
    families: NDArray[np.int64]
    """`[M]`."""
    price: Array
    """`[M]`."""
    chance: Array
    """`[M]`."""
    prior: Array
    """`[M]`."""


class SearchOptions:
    """The options of a search as it stands."""

    def __init__(
        self,
        begun: Begun,
        *,
        rungs: Sequence[int],
        reference_error: float,
        reference_costs: Array,
        baseline_error: float,
        random: np.random.Generator,
        groups: Sequence[int] | None = None,
    ) -> None:
        """Fit what is known.

        Args:
            begun: the trials.
            rungs: numbers of epochs, ascending; the last is the whole training.
            reference_error: points beyond it add nothing.
            reference_costs: `[C]`, points beyond them add nothing.
            baseline_error: of a model that learned nothing.
            random: draws the ends of running trials.
            groups: `[D]`, an id per feature; features of one group share a length. None: all do.
        """
        self._begun, self._baseline = begun, baseline_error
        self._epochs = np.asarray(rungs, float)
        self._references = references(
            Reference(error=reference_error, costs=reference_costs),
            begun.costs,
            baseline_error=baseline_error,
        )
        # What failed at once says nothing of how curves go.
        failed = (begun.standing == Standing.OVER) & np.all(begun.errors == baseline_error, axis=1)
        of_curves = np.where(failed[:, None], np.nan, begun.errors)
        self._curves = fit_curves(of_curves, begun.families, rungs)
        self._rung = _last_rungs(begun.errors)
        self._values = self._observed()
        self._rows = self._chosen_rows()
        self._place = np.full(len(begun.costs), -1)
        self._place[self._rows] = np.arange(len(self._rows))
        with one_blas_thread():
            self._evidence = self._fitted(groups)
            self._running, self._ends = self._drawn_ends(random)
            self._expected_rungs = self._rung[self._rows]
            self._process = self._with_running_ends()
        self._fronts = self._fronts_with(np.arange(len(self._running)))

    def of_fresh(self, fresh: Fresh) -> Array:
        """Index `[M]`: the hypervolume that each is expected to add per price."""
        nowhere = np.full(len(fresh.price), -1)
        return self._index(fresh, nowhere, nowhere, np.zeros(len(nowhere)))

    def of_begun(self) -> Array:
        """Index `[N]` of paused and waiting trials, NaN of others."""
        begun = self._begun
        index = np.full(len(begun.costs), np.nan)
        which = np.flatnonzero(np.isin(begun.standing, (Standing.PAUSED, Standing.WAITING)))
        index[which] = self._index(
            self._options_of(which), self._rung[which], self._place[which], self._values[which]
        )
        return index

    def go_on_below(self, which: int, level: float) -> Array:
        """The largest log error `[R]` at which a running trial is worth `level` at each rung.

        From the rung on that it trains to: -inf where it never is, inf where it is whatever the
        error. NaN at earlier rungs and at the last.
        """
        begun, last = self._begun, len(self._epochs) - 1
        found = np.full(last + 1, np.nan)
        rungs = np.arange(int(begun.until[which]), last)
        if not len(rungs):
            return found
        others = np.flatnonzero(self._running != which)
        gains = Gains(self._fronts_with(others), begun.costs[[which]])
        trial = self._options_of(np.full(len(rungs), which))
        place = self._place[np.full(len(rungs), which)]
        now, later, final, observed = self._looked_at(trial, rungs, place)
        step, rest = self._prices(rungs, trial.price)

        def is_worth_it(errors: Array) -> NDArray[np.bool_]:
            values, _ = self._curves.carried(errors, rungs, trial.families)
            news = values - trial.prior - observed
            options = Options(
                mean=final + now.weight * news + trial.prior,
                variance=now.left,
                left=later.left,
                step=step,
                rest=rest,
                chance=trial.chance,
            )
            return gains.index(options) >= level

        told = begun.errors[~np.isnan(begun.errors)]
        low = np.full(len(rungs), min([self._baseline, *told]) - _BELOW_BEST)
        high = np.full(len(rungs), self._baseline + _ABOVE_BASELINE)
        never, always = ~is_worth_it(low), is_worth_it(high)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            # The index falls as the error grows.
            is_worth = is_worth_it(middle)
            low, high = np.where(is_worth, middle, low), np.where(is_worth, high, middle)
        found[rungs] = np.where(always, np.inf, np.where(never, -np.inf, low))
        return found

    def _observed(self) -> Array:
        """What each trial's last rung says of its final error `[N]`, relative to its prior."""
        begun, told = self._begun, self._rung >= 0
        values, rungs = np.zeros(len(told)), self._rung[told]
        values[told], _ = self._curves.carried(
            begun.errors[told, rungs], rungs, begun.families[told]
        )
        values[told] -= begun.prior[told]
        values[~told] = values[told].mean() if told.any() else self._baseline - _USUAL_DROP
        return values

    def _chosen_rows(self) -> NDArray[np.intp]:
        """The trials that the process knows: the most useful ones, not the newest."""
        begun = self._begun
        usable = (self._rung >= 0) | (begun.standing == Standing.RUNNING)
        rank = np.full(len(usable), 3)
        rank[begun.standing == Standing.PAUSED] = 2
        finished = np.flatnonzero(begun.standing == Standing.FINISHED)
        points = np.column_stack([begun.costs, begun.errors[:, -1]])[finished]
        if len(finished):
            rank[finished[undominated(points)]] = 1
        rank[begun.standing == Standing.RUNNING] = 0
        far = self._values.copy()
        first, others = np.flatnonzero(usable & (rank < 3)), np.flatnonzero(usable & (rank == 3))
        if 0 < len(first) < MOST_FITTED < len(first) + len(others):
            # Late: naming a sampler needs none of it.
            from scipy.spatial.distance import (
                cdist,  # pyright: ignore[reportUnknownVariableType]
            )

            far[others] = cdist(begun.features[others], begun.features[first]).min(axis=1)
        chosen = np.flatnonzero(usable)
        return chosen[np.lexsort((far[chosen], rank[chosen]))][:MOST_FITTED]

    def _fitted(self, groups: Sequence[int] | None) -> FinalErrors:
        features, values = self._begun.features[self._rows], self._values[self._rows]
        ids = np.array(list(groups) if groups else [0] * features.shape[1], np.int64)
        kernel, noise = Kernel(ids), self._noise(self._rung[self._rows])
        usual = float(values.mean()) if len(values) else self._baseline - _USUAL_DROP
        some = slice(_MOST_SCALED)
        scales = fit_scales(kernel, features[some], values[some], noise[some, some], usual=usual)
        return FinalErrors(kernel, scales, features, values, noise, usual=usual)

    def _drawn_ends(self, random: np.random.Generator) -> tuple[NDArray[np.intp], Array]:
        """Running trials `[K]` and joint draws of their final errors `[draws, K]`."""
        begun = self._begun
        running = np.flatnonzero((begun.standing == Standing.RUNNING) & (self._place >= 0))
        # The same draws whatever the order of the trials.
        keys = np.column_stack([begun.errors, begun.features, begun.costs])[running]
        running = running[np.lexsort(keys.T)]
        if not len(running):
            return running, np.empty((1, 0))
        mean, covariance = self._evidence.of_trials(self._place[running])
        mean += begun.prior[running]
        spectrum, basis = np.linalg.eigh(covariance)
        root = basis * np.sqrt(np.maximum(spectrum, 0.0))
        normal = random.standard_normal((_DRAWS // 2, len(running)))
        return running, mean + np.concatenate([normal, -normal]) @ root.T

    def _with_running_ends(self) -> FinalErrors:
        """As if each running trial had reached its rung: what is known then, if no mean moves."""
        if not len(self._running):
            return self._evidence
        places = self._place[self._running]
        self._expected_rungs[places] = self._begun.until[self._running]
        return self._evidence.with_noise(self._noise(self._expected_rungs))

    def _noise(self, rungs: NDArray[np.int64]) -> Array:
        """Covariance of what the process knows, with its trials at rungs; at -1 nothing is."""
        families = self._begun.families[self._rows]
        look = self._look(families, rungs, rungs)
        noise, silent = look.shared, rungs < 0
        noise[silent] = 0.0
        noise[np.diag_indices(len(rungs))] = np.where(silent, NOTHING, look.noise)
        return noise

    def _fronts_with(self, running: NDArray[np.intp]) -> list[tuple[float, Front]]:
        """What is finished and some of the running trials, at each of their drawn ends."""
        begun, of = self._begun, self._running[running]
        done = begun.standing == Standing.FINISHED
        costs = np.concatenate([begun.costs[done], begun.costs[of]])
        ends = self._ends[:, running] if len(running) else self._ends[:1, running]
        fronts: list[tuple[float, Front]] = []
        for reference in self._references:
            for end in ends:
                errors = np.concatenate([begun.errors[done, -1], end])
                fronts.append((reference.weight / len(ends), reference.front(costs, errors)))
        return fronts

    def _options_of(self, which: NDArray[np.intp]) -> Fresh:
        """Some of the trials, as what could be trained."""
        begun = self._begun
        return Fresh(
            features=begun.features[which],
            costs=begun.costs[which],
            families=begun.families[which],
            price=begun.price[which],
            chance=begun.chance[which],
            prior=begun.prior[which],
        )

    def _index(
        self,
        options: Fresh,
        rungs: NDArray[np.int64],
        places: NDArray[np.intp],
        values: Array,
    ) -> Array:
        """Of options at rungs, -1 before the first, that were observed at `values` there."""
        if not len(rungs):
            return np.zeros(0)
        now, later, final, observed = self._looked_at(options, rungs, places)
        at_rung = rungs >= 0
        news = np.where(at_rung, values - observed, 0.0)
        step, rest = self._prices(rungs, options.price)
        return Gains(self._fronts, options.costs).index(
            Options(
                mean=final + now.weight * news + options.prior,
                variance=np.where(at_rung, now.left, now.variance),
                left=later.left,
                step=step,
                rest=rest,
                chance=options.chance,
            )
        )

    def _looked_at(
        self, options: Fresh, rungs: NDArray[np.int64], places: NDArray[np.intp]
    ) -> tuple[Seen, Seen, Array, Array]:
        """Options at their rungs and at the next, and means: of their ends and at their rungs.

        They vary as if what runs had arrived, but no mean moves before it has.
        """
        families = options.families
        now, later = (self._look(families, at, self._expected_rungs) for at in (rungs, rungs + 1))
        as_it_is = self._look(families, rungs, self._rung[self._rows])
        with one_blas_thread():
            prior = self._evidence.prior_with(options.features)
            seen, then = self._process.looked_at(prior, [now, later], places)
            return seen, then, *self._evidence.means(prior, as_it_is, places)

    def _look(
        self,
        families: NDArray[np.int64],
        rungs: NDArray[np.int64],
        rungs_of_rows: NDArray[np.int64],
    ) -> Look:
        """What some trials would show at rungs; where that is -1, it is not to be used."""
        at, families_of_rows = np.maximum(rungs, 0), self._begun.families[self._rows]
        shared = self._curves.shared(at, families, rungs_of_rows, families_of_rows)
        shared[:, rungs_of_rows < 0] = 0.0
        return Look(noise=self._curves.variance(at, families), shared=shared)

    def _prices(self, rungs: NDArray[np.int64], price: Array) -> tuple[Array, Array]:
        """Of the epochs from each rung to the next, and of those after it."""
        begins = np.where(rungs >= 0, self._epochs[rungs], 0.0)
        ends = self._epochs[rungs + 1]
        return price * (ends - begins), price * (self._epochs[-1] - ends)


def _last_rungs(errors: Array) -> NDArray[np.int64]:
    """Index `[N]` of the last rung that each trial has reached, -1 for none."""
    places: NDArray[np.int64] = np.arange(1, errors.shape[1] + 1, dtype=np.int64)
    return np.max(np.where(np.isnan(errors), 0, places), axis=1, initial=0) - 1
