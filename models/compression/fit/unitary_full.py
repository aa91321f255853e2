"""Complex matrices to `unitary_full`: the nearest unitary matrix, and the phases that make it."""

import torch
from torch import Tensor

from models.compression.target import Target
from models.math.linalg import hermitian_eigen, svd
from models.math.orthogonal_maps import CAYLEY
from models.parametrizations.unitary_full import UnitaryFullLinear

LARGEST_PHASE = torch.pi - 1e-3
"""The Cayley transform reaches no eigenvalue -1: phases beyond this one are moved to it."""


def fit_unitary_full_(linear: UnitaryFullLinear, target: Target) -> None:
    """The polar factor of each matrix, which no unitary matrix is nearer than, in place."""
    size = linear.slot.in_features
    by_cayley = linear.orthogonal_map is CAYLEY
    for place, matrix in enumerate(target.weight):
        left, _, right = svd(torch.complex(matrix[:size, :size], matrix[size:, :size]))
        vectors, phases = _eigen(left @ right)
        if by_cayley:
            phases = -torch.tan(phases.clamp(-LARGEST_PHASE, LARGEST_PHASE) / 2)
        skew = (vectors * (1j * phases)) @ vectors.mH
        with torch.no_grad():
            linear.a[place] = skew.real.tril(-1) + skew.imag.triu()


def _eigen(unitary: Tensor) -> tuple[Tensor, Tensor]:
    """Orthonormal eigenvectors `[n, n]` of a unitary matrix, and its phases `[n]`.

    They are the eigenvectors of a Hermitian matrix, for which solvers give orthonormal ones.
    """
    real = (unitary + unitary.mH) / 2
    imaginary = (unitary - unitary.mH) / 2j
    # With an odd weight no two phases but equal ones have the same eigenvalue.
    _, vectors = hermitian_eigen(real + 0.6180339887 * imaginary)
    return vectors, (vectors.mH @ unitary @ vectors).diagonal().angle()
