"""How a weight matrix may be stored.

The union of `models.parametrizations.families` is the registry of what a search may name; a
document may name a member of it for each layer.
"""

from typing import Annotated, TypeAlias

from pydantic import Field

from models.parametrizations.dense import Dense
from models.parametrizations.factorized_svd import FactorizedSvd
from models.parametrizations.families import PARAMETRIZATIONS, AnyFamily, Variants
from models.parametrizations.householder import Householder
from models.parametrizations.householder_svd import HouseholderSvd
from models.parametrizations.low_rank import LowRank
from models.parametrizations.low_rank_diagonal import LowRankDiagonal
from models.parametrizations.packed_rotations import PackedRotations
from models.parametrizations.parametrization import Family, Parametrization
from models.parametrizations.per_layer import PerLayer
from models.parametrizations.rotation_svd import RotationSvd
from models.parametrizations.unitary_fft import UnitaryFft
from models.parametrizations.unitary_full import UnitaryFull

AnyParametrization: TypeAlias = Annotated[Variants | PerLayer, Field(discriminator="kind")]

__all__ = [
    "PARAMETRIZATIONS",
    "AnyFamily",
    "AnyParametrization",
    "Dense",
    "FactorizedSvd",
    "Family",
    "Householder",
    "HouseholderSvd",
    "LowRank",
    "LowRankDiagonal",
    "PackedRotations",
    "Parametrization",
    "PerLayer",
    "RotationSvd",
    "UnitaryFft",
    "UnitaryFull",
]
