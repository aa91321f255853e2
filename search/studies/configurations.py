"""Which trials are of one configuration, and what it reaches over its seeds."""

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from search.student import half_width, standard_error
from storage.records import TrialOrigin, TrialRecord
from storage.repositories.trial_summaries import AnyTrial

_EARLIER_TRAINING = {"quantised_epochs": 2}
"""What documents of an earlier version do not say of training: nothing that changes theirs."""


@dataclass(frozen=True, kw_only=True)
class OverSeeds:
    """The quality of one configuration, trained with one seed or several."""

    seeds: int
    mean: float
    interval: tuple[float, float] | None
    """Where the mean over all seeds lies, by Student's t; null for a single seed."""
    standard_error: float = 0.0
    """Of the mean, as these seeds differ; 0 for a single one, of which it is not known."""


def configuration_of(spec: Mapping[str, Any]) -> str:
    """What makes two trials the same: all of their documents but the seed."""
    if "picks" in spec:
        # A network of others, as `search.graphs.network_trial` stores it anew.
        how = spec.get("fine_tune")
        return json.dumps(spec["picks"] if how is None else [spec["picks"], how], sort_keys=True)
    # Documents of an earlier version have no start to speak of, and no quantised epochs.
    training = {**_EARLIER_TRAINING, **spec["training"]}
    return json.dumps([spec["model"], training, spec.get("compression")], sort_keys=True)


@dataclass(frozen=True)
class Seeded:
    """What a trial trains, and with which seed."""

    configuration: bytes
    """A digest of `configuration_of`: thousands of them are kept."""
    seed: int


def seeded(spec: Mapping[str, Any]) -> Seeded:
    """The same of a trial's document."""
    digest = hashlib.blake2b(configuration_of(spec).encode(), digest_size=16).digest()
    return Seeded(digest, cast(int, spec["seed"]))


def replicate_seed(seed: int, number: int) -> int:
    """The seed of trial `number` where it repeats a configuration: it follows from the study's."""
    # The third word keeps it apart from the sampler's seed of the same number.
    return int(np.random.SeedSequence([seed, number, 1]).generate_state(1)[0])


def is_trained_afresh(trial: TrialRecord) -> bool:
    """Whether a trial was trained from the start, for the search itself."""
    return trial.continues is None and trial.origin != TrialOrigin.CONFIRMATION


class Qualities:
    """The qualities of complete trials over the seeds of their configurations.

    A seed counts once, however many trials share its result: with the first of them. Trials that
    went on from a checkpoint are left out: they were trained for longer.
    """

    def __init__(self, trials: Sequence[AnyTrial], known: Mapping[int, Seeded]) -> None:
        """`trials` are complete ones, by number, and `known` is what each of them trains."""
        self._known = known
        self._by_seed: dict[bytes, dict[int, float]] = {}
        for trial in trials:
            if trial.continues is None and trial.quality is not None:
                its = known[trial.number]
                seeds = self._by_seed.setdefault(its.configuration, {})
                seeds.setdefault(its.seed, trial.quality)

    def of(self, trial: AnyTrial) -> OverSeeds | None:
        """Those of a trial's configuration; none where its training had another start."""
        qualities = self._of(trial)
        return None if qualities is None else over_seeds(list(qualities.values()))

    def mean(self, trial: AnyTrial) -> float | None:
        """The mean over the seeds, or the trial's own quality."""
        qualities = self._of(trial)
        return trial.quality if qualities is None else _mean(list(qualities.values()))

    def _of(self, trial: AnyTrial) -> Mapping[int, float] | None:
        if trial.continues is not None:
            return None
        return self._by_seed.get(self._known[trial.number].configuration)


def over_seeds(qualities: Sequence[float]) -> OverSeeds:
    """Mean and interval of at least one quality, each of another seed."""
    count, mean = len(qualities), _mean(qualities)
    half = half_width(qualities)
    if half is None:
        return OverSeeds(seeds=count, mean=mean, interval=None)
    return OverSeeds(
        seeds=count,
        mean=mean,
        interval=(mean - half, mean + half),
        standard_error=standard_error(qualities),
    )


def _mean(qualities: Sequence[float]) -> float:
    return qualities[0] if len(qualities) == 1 else statistics.fmean(qualities)
