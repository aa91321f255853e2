"""Independent uniform draws."""

from typing import Literal

from optuna.samplers import BaseSampler, RandomSampler

from search.samplers.sampler import Sampler, SamplerContext


class Random(Sampler):
    """Random search (Bergstra & Bengio 2012).

    Every suggestion follows from the seed and its number alone.
    """

    kind: Literal["random"] = "random"

    def build(self, seed: int) -> BaseSampler:
        """A sampler for one suggestion, whose every draw follows from `seed`."""
        return RandomSampler(seed=seed)

    def build_for(self, _study: SamplerContext, /, *, seed: int) -> BaseSampler:
        """The same for every study."""
        return self.build(seed)
