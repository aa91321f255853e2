"""Search spaces: dimensions, overrides, candidates, and the way from a document to its space."""

from typing import TypeAlias

from search.spaces.dimension import (
    ChoiceDimension,
    Dimension,
    GivenScalar,
    IntegerDimension,
    Override,
    RealDimension,
    Scalar,
)
from search.spaces.draws import (
    CornerSource,
    NamedSource,
    PinnedSource,
    Source,
    TrialSource,
    names_of,
)
from search.spaces.limits import (
    Limits,
    MeasuredValues,
    disagreeing,
    excesses,
    excesses_of_a_network,
    margins,
    most_allowed,
    slow,
    state_bytes,
)
from search.spaces.model_space import (
    ARCHITECTURE_KINDS,
    PARAMETRIZATION_KINDS,
    TRAINING,
    Candidate,
    DrawnTrial,
    Hyperparameters,
    corners,
)
from search.spaces.network_space import LATER, DrawnNetwork, NetworkSpace, Proposal
from search.spaces.space import SearchSpace
from search.spaces.torch_defaults import TORCH_DEFAULTS

AnySpace: TypeAlias = SearchSpace | NetworkSpace
"""The space of models that are trained, or of a network's layers."""

AnyDrawn: TypeAlias = DrawnTrial | DrawnNetwork
"""One configuration of either."""

__all__ = [
    "ARCHITECTURE_KINDS",
    "LATER",
    "PARAMETRIZATION_KINDS",
    "TORCH_DEFAULTS",
    "TRAINING",
    "AnyDrawn",
    "AnySpace",
    "Candidate",
    "ChoiceDimension",
    "CornerSource",
    "Dimension",
    "DrawnNetwork",
    "DrawnTrial",
    "GivenScalar",
    "Hyperparameters",
    "IntegerDimension",
    "Limits",
    "MeasuredValues",
    "NamedSource",
    "NetworkSpace",
    "Override",
    "PinnedSource",
    "Proposal",
    "RealDimension",
    "Scalar",
    "SearchSpace",
    "Source",
    "TrialSource",
    "corners",
    "disagreeing",
    "excesses",
    "excesses_of_a_network",
    "margins",
    "most_allowed",
    "names_of",
    "slow",
    "state_bytes",
]
