"""Our dimensions as Optuna's distributions."""

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from search.spaces import ChoiceDimension, Dimension, IntegerDimension, RealDimension


def distribution_of(dimension: Dimension) -> BaseDistribution:
    """The distribution that has the same values, drawn alike."""
    match dimension:
        case IntegerDimension(low=low, high=high, log=log, step=step):
            return IntDistribution(low, high, log=log, step=step)
        case RealDimension(low=low, high=high, log=log, step=step):
            return FloatDistribution(low, high, log=log, step=step)
        case ChoiceDimension(options=options):
            return CategoricalDistribution(options)
