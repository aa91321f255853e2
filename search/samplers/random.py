"""Independent uniform draws."""

from typing import Literal

from optuna.samplers import BaseSampler, RandomSampler

from models.spec import Spec


class Random(Spec):
    """Random search (Bergstra & Bengio 2012).

    Every suggestion follows from the seed and its number alone.
    """

    kind: Literal["random"] = "random"

    def build(self, seed: int) -> BaseSampler:
        """A sampler for one suggestion, whose every draw follows from `seed`."""
        return RandomSampler(seed=seed)
