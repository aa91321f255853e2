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
from scipy.spatial.distance import cdist  # pyright: ignore[reportUnknownVariableType]
from threadpoolctl import threadpool_limits  # pyright: ignore[reportMissingTypeStubs]

from search.samplers.modelling.acquisition import Front, undominated
from search.samplers.modelling.final_errors import NOTHING, FinalErrors, Kernel, fit_scales
from search.samplers.modelling.gaussian_process import Array
from search.samplers.modelling.learning_curves import fit_curves
from search.samplers.modelling.option_index import Gains, Options

MOST_FITTED = 400
"""Trials that the process knows: its time grows with their cube."""

_MOST_SCALED = 150
"""Trials that its scales are fitted to."""

_DRAWS = 4
"""How often the ends of running trials are drawn; in pairs that mirror each other."""

_FROM_BASELINE = 1e-6
"""How much hypervolume outside the region of interest counts: it decides where all else is 0."""

_USUAL_DROP = 1.5
"""By how much a final log error is below the baseline's, before anything is known."""

_ROUNDS, _POINTS = 4, 16
"""A threshold is searched among so many errors, so many times."""

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


class Outlook:
    """The options of a search as it stands."""

    def __init__(
        self,
        begun: Begun,
        *,
        rungs: Sequence[int],
        reference_error: float,
        reference_costs: Array,
        baseline_error: float,
        restart: float = 0.0,
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
            restart: price of going on with a paused trial.
            random: draws the ends of running trials.
            groups: `[D]`, an id per feature; features of one group share a length. None: all do.
        """
        self._begun, self._restart, self._baseline = begun, restart, baseline_error
        self._epochs = np.asarray(rungs, float)
        self._references = self._references_of(reference_error, reference_costs)
        # What failed at once says nothing of how curves go.
        failed = (begun.standing == Standing.OVER) & np.all(begun.errors == baseline_error, axis=1)
        of_curves = np.where(failed[:, None], np.nan, begun.errors)
        self._curves = fit_curves(of_curves, begun.families, rungs)
        self._rung = _last_rungs(begun.errors)
        self._values, self._noise = self._observations()
        self._rows = self._chosen_rows()
        self._place = np.full(len(begun.costs), -1)
        self._place[self._rows] = np.arange(len(self._rows))
        with threadpool_limits(1, user_api="blas"):
            self._evidence = self._fitted(groups)
            self._running, self._ends = self._drawn_ends(random)
            self._process = self._with_running_ends()
        self._fronts = self._fronts_with(np.arange(len(self._running)))

    def of_fresh(self, fresh: Fresh) -> Array:
        """Index `[M]`: the hypervolume that each is expected to add per price."""
        with threadpool_limits(1, user_api="blas"):
            mean, variance = self._process.of_new(fresh.features)
        unseen = np.full(len(mean), -1)
        return self._index(fresh, unseen, mean + fresh.prior, variance, restart=0.0)

    def of_begun(self) -> Array:
        """Index `[N]` of paused and waiting trials, NaN of others."""
        begun = self._begun
        index = np.full(len(begun.costs), np.nan)
        is_paused = begun.standing == Standing.PAUSED
        which = np.flatnonzero(is_paused | (begun.standing == Standing.WAITING))
        with threadpool_limits(1, user_api="blas"):
            mean, variance = self._final(self._process, which)
        options = Fresh(
            features=begun.features[which],
            costs=begun.costs[which],
            families=begun.families[which],
            price=begun.price[which],
            chance=begun.chance[which],
            prior=begun.prior[which],
        )
        restart = np.where(is_paused[which], self._restart, 0.0)
        index[which] = self._index(options, self._rung[which], mean, variance, restart=restart)
        return index

    def go_on_below(self, which: int, level: float) -> Array:
        """The largest log error `[R]` at which a running trial is worth `level` at each rung.

        From the rung on that it trains to, without `restart`: -inf where it never is, inf where it
        is whatever the error. NaN at earlier rungs and at the last.
        """
        begun, last = self._begun, len(self._epochs) - 1
        found = np.full(last + 1, np.nan)
        rungs = np.arange(int(begun.until[which]), last)
        if not len(rungs):
            return found
        others = np.flatnonzero(self._running != which)
        gains = Gains(self._fronts_with(others), begun.costs[[which]])
        known, spread = self._process.without(int(self._place[which]))
        family = np.full(len(rungs), begun.families[which])

        def is_worth_it(errors: Array) -> NDArray[np.bool_]:
            """Of errors `[rungs, points]`."""
            at = np.repeat(rungs, errors.shape[1])
            families = np.repeat(family, errors.shape[1])
            values, variances = self._curves.carried(errors.ravel(), at, families)
            variance = 1 / (1 / spread + 1 / variances)
            mean = variance * (known / spread + (values - begun.prior[which]) / variances)
            ones = np.ones(len(at))
            step, rest = self._prices(at, begun.price[which] * ones)
            options = Options(
                mean=mean + begun.prior[which],
                variance=variance,
                noise=variances,
                next_noise=self._curves.variance(at + 1, families),
                step=step,
                rest=rest,
                chance=begun.chance[which] * ones,
            )
            return (gains.index(options) >= level).reshape(errors.shape)

        told = begun.errors[~np.isnan(begun.errors)]
        low = np.full(len(rungs), min([self._baseline, *told]) - _BELOW_BEST)
        high = np.full(len(rungs), self._baseline + _ABOVE_BASELINE)
        ends = is_worth_it(np.stack([low, high], axis=1))
        for _ in range(_ROUNDS):
            points = np.linspace(low, high, _POINTS, axis=1)
            # The index falls as the error grows: the last point that is worth it, and the next.
            at = np.maximum(is_worth_it(points).sum(axis=1) - 1, 0)
            each = np.arange(len(rungs))
            low, high = points[each, at], points[each, np.minimum(at + 1, _POINTS - 1)]
        found[rungs] = np.where(ends[:, 1], np.inf, np.where(ends[:, 0], low, -np.inf))
        return found

    def finals(self) -> tuple[Array, Array]:
        """Mean and standard deviation `[N]` of each trial's final log error."""
        everything = np.arange(len(self._begun.costs))
        with threadpool_limits(1, user_api="blas"):
            mean, variance = self._final(self._evidence, everything)
        return mean, np.sqrt(variance)

    def _references_of(self, error: float, costs: Array) -> list[tuple[float, float, Array]]:
        """Weights, and from where the hypervolume is measured: the region, and everything."""
        dearest = np.max([costs, *(self._begun.costs + 0.05)], axis=0)
        baseline = max(error, self._baseline)
        if error == baseline and np.array_equal(dearest, costs):
            return [(1.0, error, costs)]
        return [(1.0, error, costs), (_FROM_BASELINE, baseline, dearest)]

    def _observations(self) -> tuple[Array, Array]:
        """What each trial's last rung says of its final error `[N]`, relative to its prior."""
        begun, told = self._begun, self._rung >= 0
        values, noise = np.zeros(len(told)), np.full(len(told), np.inf)
        rungs = self._rung[told]
        values[told], noise[told] = self._curves.carried(
            begun.errors[told, rungs], rungs, begun.families[told]
        )
        values[told] -= begun.prior[told]
        values[~told] = values[told].mean() if told.any() else self._baseline - _USUAL_DROP
        return values, noise

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
        if len(first) + len(others) > MOST_FITTED and len(first) and len(others):
            far[others] = cdist(begun.features[others], begun.features[first]).min(axis=1)
        chosen = np.flatnonzero(usable)
        return chosen[np.lexsort((far[chosen], rank[chosen]))][:MOST_FITTED]

    def _fitted(self, groups: Sequence[int] | None) -> FinalErrors:
        features, values = self._begun.features[self._rows], self._values[self._rows]
        ids = np.array(list(groups) if groups else [0] * features.shape[1], np.int64)
        kernel, noise = Kernel(ids), np.minimum(self._noise[self._rows], NOTHING)
        usual = float(values.mean()) if len(values) else self._baseline - _USUAL_DROP
        some = slice(_MOST_SCALED)
        scales = fit_scales(kernel, features[some], values[some], noise[some], usual=usual)
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
        mean, _ = self._final(self._evidence, running)
        covariance = self._evidence.covariance(self._place[running])
        spectrum, basis = np.linalg.eigh(covariance)
        root = basis * np.sqrt(np.maximum(spectrum, 0.0))
        normal = random.standard_normal((_DRAWS // 2, len(running)))
        return running, mean + np.concatenate([normal, -normal]) @ root.T

    def _with_running_ends(self) -> FinalErrors:
        """As if each running trial had reached its rung, and stood where it is expected."""
        if not len(self._running):
            return self._evidence
        begun, places = self._begun, self._place[self._running]
        expected, _ = self._evidence.of_trials()
        values, noise = self._values[self._rows], np.minimum(self._noise[self._rows], NOTHING)
        later = self._curves.variance(begun.until[self._running], begun.families[self._running])
        later = np.clip(later, 1e-6, noise[places])
        # Together with what is known already it has the rung's variance, and no mean moves.
        share = later / noise[places]
        values[places] = share * values[places] + (1 - share) * expected[places]
        noise[places] = later
        return self._evidence.with_variances(values, noise)

    def _fronts_with(self, running: NDArray[np.intp]) -> list[tuple[float, Front]]:
        """What is finished and some of the running trials, at each of their drawn ends."""
        begun, of = self._begun, self._running[running]
        done = begun.standing == Standing.FINISHED
        costs = np.concatenate([begun.costs[done], begun.costs[of]])
        ends = self._ends[:, running] if len(running) else self._ends[:1, running]
        fronts: list[tuple[float, Front]] = []
        for weight, error, reference_costs in self._references:
            for end in ends:
                errors = np.concatenate([begun.errors[done, -1], end])
                front = Front(costs, errors, reference_error=error, reference_costs=reference_costs)
                fronts.append((weight / len(ends), front))
        return fronts

    def _index(
        self,
        options: Fresh,
        rungs: NDArray[np.int64],
        mean: Array,
        variance: Array,
        *,
        restart: Array | float,
    ) -> Array:
        """Of options at rungs, -1 before the first."""
        if not len(mean):
            return np.zeros(0)
        step, rest = self._prices(rungs, options.price)
        noise = np.where(rungs >= 0, self._curves.variance(rungs, options.families), np.inf)
        return Gains(self._fronts, options.costs).index(
            Options(
                mean=mean,
                variance=variance,
                noise=noise,
                next_noise=self._curves.variance(rungs + 1, options.families),
                step=step + restart,
                rest=rest,
                chance=options.chance,
            )
        )

    def _prices(self, rungs: NDArray[np.int64], price: Array) -> tuple[Array, Array]:
        """Of the epochs from each rung to the next, and of those after it."""
        begins = np.where(rungs >= 0, self._epochs[rungs], 0.0)
        ends = self._epochs[rungs + 1]
        return price * (ends - begins), price * (self._epochs[-1] - ends)

    def _final(self, process: FinalErrors, which: NDArray[np.intp]) -> tuple[Array, Array]:
        """Mean and variance of the final errors of some trials."""
        places = self._place[which]
        mean, variance = np.empty(len(which)), np.empty(len(which))
        of_rows = process.of_trials()
        known = places >= 0
        mean[known], variance[known] = of_rows[0][places[known]], of_rows[1][places[known]]
        others = which[~known]
        guess, spread = process.of_new(self._begun.features[others])
        # Of what the process does not know, the trial's own curve is counted here.
        shares = spread / (spread + self._noise[others])
        mean[~known] = guess + shares * (self._values[others] - guess)
        variance[~known] = spread * (1 - shares)
        return mean + self._begun.prior[which], variance


def _last_rungs(errors: Array) -> NDArray[np.int64]:
    """Index `[N]` of the last rung that each trial has reached, -1 for none."""
    places: NDArray[np.int64] = np.arange(1, errors.shape[1] + 1, dtype=np.int64)
    return np.max(np.where(np.isnan(errors), 0, places), axis=1, initial=0) - 1
