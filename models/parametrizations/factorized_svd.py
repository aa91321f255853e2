"""A matrix kept as its singular value decomposition with two full orthogonal sides."""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from models.forms import DenseForm
from models.linear import StructuredLinear
from models.math.initialisation import normal_
from models.math.orthogonal_maps import (
    ORTHOGONAL_MAPS,
    OrthogonalMap,
    OrthogonalMapName,
    skew_matrix,
    skew_positions,
)
from models.math.precision import raised
from models.math.spectrum import SigmoidSpectrum, with_interval
from models.parameter_sampler import ParameterSampler
from models.parametrizations.parametrization import Family, refuse_rectangle
from models.quantization import Rows, Scheme
from models.spec import Slot


class FactorizedSvd(Family):
    """`W = U diag(s) V^T` with rotations U and V, and every s within the margin of 1.

    `s = 2 margin sigmoid(p) + 1 - margin`; with margin 0 all s are 1, there is no p, and W is
    orthogonal. The determinant of W is positive.

    The source keeps U and V as matrices of n^2 numbers on the manifold by geodesic gradient steps
    of their own; here each is the Cayley transform or the exponential of a skew matrix, whose
    n (n - 1) / 2 numbers any optimizer trains. The Cayley transform `(I + A)^{-1} (I - A)` is
    cheaper, but has no matrix with an eigenvalue -1 and is slow near them; the exponential has
    every rotation. (The released step of the source always starts from the first U and V and
    multiplies the wrong side of the gradient, so that its updates do not add up; nothing of it is
    kept.)
    """

    title: ClassVar[str] = "Factorized SVD"
    paper: ClassVar[str] = (
        "Vorontsov, Trabelsi, Kadoury, Pal: On orthogonality and learning recurrent networks with "
        "long term dependencies (ICML 2017, arXiv:1702.00071)"
    )

    reals: ClassVar[frozenset[str]] = frozenset({"margin"})

    kind: Literal["factorized_svd"] = "factorized_svd"
    margin: float = Field(
        default=0.0, ge=0, le=1, description="how far the singular values may be from 1"
    )
    orthogonal_map: OrthogonalMapName = Field(
        default="cayley", description="how U and V follow from skew matrices"
    )

    @property
    def optional(self) -> frozenset[str]:
        """P, which there is with a margin alone."""
        return frozenset({"p"} if self.margin > 0 else ())

    @classmethod
    def suggest(cls, sampler: ParameterSampler, slot: Slot, *, largest: int) -> Self:  # noqa: ARG003 -- no count
        """Margin log-uniform in [1e-3, 0.5]."""
        return cls(margin=sampler.real("margin", 1e-3, 0.5, log=True))

    @classmethod
    def check_slot(cls, slot: Slot) -> None:
        """The matrix is square."""
        super().check_slot(slot)
        refuse_rectangle(slot)

    def check(self, slot: Slot) -> None:
        """The matrix is square."""
        self.check_slot(slot)

    def parameter_count(self, slot: Slot) -> int:
        """`n (n - 1)` per matrix, and n more with a margin."""
        size = slot.in_features
        return slot.num_matrices * (size * (size - 1) + (size if self.margin > 0 else 0))

    def paper_count(self, slot: Slot) -> int:
        """`2 n^2 + n` per matrix: the source stores U and V in full, and s whatever the margin."""
        return slot.num_matrices * (2 * slot.in_features**2 + slot.in_features)

    def working_numbers(self, slot: Slot) -> int:
        """Both orthogonal matrices, of which each is made of a solution."""
        return slot.num_matrices * 18 * slot.in_features**2

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Random rotations U and V, singular values 1."""
        self.check(slot)
        return FactorizedSvdLinear(
            slot,
            margin=self.margin,
            orthogonal_map=ORTHOGONAL_MAPS[self.orthogonal_map],
            generator=generator,
        )


class FactorizedSvdLinear(StructuredLinear):
    """Stores the halves `[G, n (n - 1) / 2]` of two skew matrices, and p `[G, n]` with a margin."""

    p: nn.Parameter | None
    _positions: Tensor

    def __init__(
        self,
        slot: Slot,
        *,
        margin: float,
        orthogonal_map: OrthogonalMap,
        generator: torch.Generator,
    ) -> None:
        super().__init__(slot)
        size = slot.in_features
        self.orthogonal_map = orthogonal_map
        self.spectrum = SigmoidSpectrum(1.0, margin)
        positions = skew_positions(size)
        self.register_buffer("_positions", positions, persistent=False)
        self.u = nn.Parameter(torch.empty(slot.num_matrices, len(positions)))
        self.v = nn.Parameter(torch.empty(slot.num_matrices, len(positions)))
        for side in (self.u, self.v):
            normal_(side, orthogonal_map.start_deviation(size), generator=generator)
        p = nn.Parameter(torch.zeros(slot.num_matrices, size)) if margin > 0 else None
        self.register_parameter("p", p)

    def singular_values(self) -> Tensor:
        """S `[G, n]`, in at least single precision."""
        if self.p is None:
            return raised(self.u).new_ones(self.num_matrices, self.in_features)
        return self.spectrum.values(raised(self.p))

    def make_form(self) -> DenseForm:
        """W, both sides made in one go."""
        packed = raised(torch.cat((self.u, self.v)))
        skew = skew_matrix(packed, self._positions, size=self.in_features)
        u, v = self.orthogonal_map.matrix(skew).chunk(2)
        weight = (u * self.singular_values().unsqueeze(-2)) @ v.mT
        return DenseForm(weight.to(self.u.dtype))

    def schemes(self) -> Mapping[str, Scheme]:
        """Skew matrices are rounded: U and V stay orthogonal. p is not."""
        return {"u": Rows(), "v": Rows()}

    def degrees_of_freedom(self) -> int:
        """`n^2` per matrix; without a margin the `n (n - 1) / 2` of the rotations."""
        size = self.in_features
        return self.num_matrices * (size * (size - 1) // 2 if self.p is None else size**2)

    def reals(self) -> Mapping[str, float]:
        """The interval."""
        return {"centre": self.spectrum.centre, "radius": self.spectrum.radius}

    def use_reals(self, reals: Mapping[str, Tensor]) -> None:
        """See `reals`."""
        self.spectrum = with_interval(self.spectrum, reals["centre"], reals["radius"])

    def learning_rate_scales(self) -> Mapping[str, float]:
        """`ds/dp <= margin / 2`: p steps 1 / (2 margin) times as far, as in the source."""
        return {} if self.p is None else {"p": self.spectrum.learning_rate_scale}
