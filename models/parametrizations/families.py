"""The families of parametrizations.

The union is the registry: a new variant is one file and one name here.
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from models.parametrizations.dense import Dense
from models.parametrizations.factorized_svd import FactorizedSvd
from models.parametrizations.householder import Householder
from models.parametrizations.householder_svd import HouseholderSvd
from models.parametrizations.low_rank import LowRank
from models.parametrizations.low_rank_diagonal import LowRankDiagonal
from models.parametrizations.packed_rotations import PackedRotations
from models.parametrizations.rotation_svd import RotationSvd
from models.parametrizations.unitary_fft import UnitaryFft
from models.parametrizations.unitary_full import UnitaryFull

Variants: TypeAlias = (
    Dense
    | FactorizedSvd
    | Householder
    | HouseholderSvd
    | LowRank
    | LowRankDiagonal
    | PackedRotations
    | RotationSvd
    | UnitaryFft
    | UnitaryFull
)

AnyFamily: TypeAlias = Annotated[Variants, Field(discriminator="kind")]
PARAMETRIZATIONS: tuple[type[Variants], ...] = get_args(Variants)
