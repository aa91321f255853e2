"""Tree-structured Parzen estimators over several objectives."""

import warnings
from typing import Literal

from optuna.exceptions import ExperimentalWarning
from optuna.samplers import BaseSampler, TPESampler
from pydantic import Field

from search.samplers.adapters.informed import informed
from search.samplers.sampler import Sampler, SamplerContext


class Tpe(Sampler):
    """Multi-objective TPE (Ozaki et al. 2022), a joint model per group of conditional dimensions.

    `group` keeps the conditional dimensions of the variants apart; running trials count as bad
    (`constant_liar`), so that parallel suggestions differ.
    """

    kind: Literal["tpe"] = "tpe"
    startup_trials: int = Field(
        default=10, ge=1, le=1_000_000, description="random suggestions before the model is used"
    )

    def build(self, seed: int) -> BaseSampler:
        """A sampler for one suggestion, which follows from `seed` and the trials told so far."""
        with warnings.catch_warnings():
            # `group` is experimental: without it, conditional dimensions leave the joint model.
            warnings.simplefilter("ignore", ExperimentalWarning)
            return TPESampler(
                n_startup_trials=self.startup_trials,
                multivariate=True,
                group=True,
                constant_liar=True,
                seed=seed,
            )

    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:
        """The same for every study, told of what the study knows of others."""
        return informed(self.build(seed), study)
