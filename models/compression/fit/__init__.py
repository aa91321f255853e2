"""Plain matrices to members of a parametrization: the registry of fits, one file each.

A parametrization that has none says why in its `no_fit`.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from models.compression.fit.dense import fit_dense_
from models.compression.fit.factorized_svd import fit_factorized_svd_
from models.compression.fit.householder import fit_householder_
from models.compression.fit.householder_svd import fit_householder_svd_
from models.compression.fit.low_rank import fit_low_rank_
from models.compression.fit.low_rank_diagonal import fit_low_rank_diagonal_
from models.compression.fit.packed_rotations import fit_packed_rotations_
from models.compression.fit.per_layer import fit_per_layer_
from models.compression.fit.rotation_svd import fit_rotation_svd_
from models.compression.fit.unitary_full import fit_unitary_full_
from models.compression.target import Target
from models.parametrizations import (
    Dense,
    FactorizedSvd,
    Householder,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
    Parametrization,
    PerLayer,
    RotationSvd,
    UnitaryFull,
)

Fit: TypeAlias = Callable[[Any, Target], None]
"""Brings a freshly built module of its family, in double precision, near a target, in place."""

FAMILY_FITS: Mapping[type[Parametrization], Fit] = {
    Dense: fit_dense_,
    FactorizedSvd: fit_factorized_svd_,
    Householder: fit_householder_,
    HouseholderSvd: fit_householder_svd_,
    LowRank: fit_low_rank_,
    LowRankDiagonal: fit_low_rank_diagonal_,
    PackedRotations: fit_packed_rotations_,
    RotationSvd: fit_rotation_svd_,
    UnitaryFull: fit_unitary_full_,
}

FITS: Mapping[type[Parametrization], Fit] = {
    **FAMILY_FITS,
    PerLayer: partial(fit_per_layer_, fits=FAMILY_FITS),
}
