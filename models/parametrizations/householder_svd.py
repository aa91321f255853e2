"""A matrix kept as its singular value decomposition, with singular values in an interval."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from models.forms import DenseForm, LowRankForm, factored_form_pays
from models.hooks import Projected
from models.linear import StructuredLinear
from models.math.householder import staircase_entries, svd_diagonal_low_rank, svd_weight
from models.math.initialisation import glorot_limit, normal_, uniform_
from models.math.precision import raised
from models.math.spectrum import (
    ClippedSpectrum,
    FreeSpectrum,
    SigmoidSpectrum,
    Spectrum,
    with_interval,
)
from models.parameter_sampler import ParameterSampler
from models.parametrizations.parametrization import Family, refuse_outside
from models.parametrizations.parts.staircase import Staircase, reflector_numbers, trainable_entries
from models.spec import Slot

Bound = Literal["sigmoid", "clip", "free"]
SigmaLearningRate = Literal["matched", "plain"]

_SPECTRA: Mapping[Bound, Callable[[float, float], Spectrum]] = {
    "sigmoid": SigmoidSpectrum,
    "clip": ClippedSpectrum,
    "free": FreeSpectrum,
}


class HouseholderSvd(Family):
    """`W = U diag(s) V^T`: U of m1 reflectors, V of m2, and every s within r of sigma_star.

    `s = sigma_star + 2 r (sigmoid(p) - 1/2)` starts at sigma_star. With m1 = m2 = min(in, out) and
    an r that is wide enough every matrix is reached; with r small the norm of what passes through
    is all but kept. The paper's other ways are to train s itself, clipped to the interval after
    each step or free, and held near sigma_star by a penalty.

    Where sigma_star is 0, as in residual branches, s starts at random within the interval: from
    s = 0 in two layers in a row no gradient reaches any parameter (the paper's svdResNet, as its
    released code starts it, does not train).

    Where the paper errs, the corrected form is implemented; see "Errata" in
    `models/math/README.md`. Gradients are those of the product itself: of the paper's eq. 14
    the last line, not the middle one; of Algorithm 1 with the reflector's input h_{k-1} handed to
    Hgrad, not its output. m1 and m2 may reach min(in, out) whatever the shape, as Theorem 4 needs
    and Lemma 1 allows only with its bound read as n - max(k1, k2) + 1. With s = 1 and u = 0
    allowed, U V^T reaches every orthogonal matrix once m1 + m2 >= n (Theorem 3 says > n).
    """

    title: ClassVar[str] = "Householder SVD (Spectral-RNN)"
    paper: ClassVar[str] = (
        "Zhang, Lei, Dhillon: Stabilizing Gradients for Deep Neural Networks via Efficient SVD "
        "Parameterization (2018, arXiv:1803.09327)"
    )

    reals: ClassVar[frozenset[str]] = frozenset({"r", "sigma_star", "penalty"})

    kind: Literal["householder_svd"] = "householder_svd"
    m1: int = Field(ge=1, description="reflectors of U, the side that writes")
    m2: int = Field(ge=1, description="reflectors of V, the side that reads")
    r: float = Field(
        default=0.01, gt=0, le=1, description="radius of the singular values' interval"
    )
    sigma_star: float = Field(
        default=1.0, ge=0, description="centre of the singular values' interval"
    )
    bound: Bound = Field(
        default="sigmoid",
        description=(
            "what keeps the singular values in their interval: a sigmoid, clipping after each "
            "step, or nothing"
        ),
    )
    penalty: float = Field(
        default=0.0,
        ge=0,
        description="lambda of 0.5 lambda sum |s - sigma_star|^2, which is added to the loss",
    )
    sigma_learning_rate: SigmaLearningRate = Field(
        default="matched",
        description=(
            "matched: 1 / (2 r) times the learning rate behind a sigmoid, whose slope is r / 2 at "
            "most; plain: the learning rate itself"
        ),
    )

    @classmethod
    def suggest(cls, sampler: ParameterSampler, slot: Slot, *, largest: int) -> Self:
        """m1, m2 log-uniform from 1 to the shorter side, r log-uniform in [1e-3, 0.5].

        In a residual branch the singular values lie around 0, else around 1.
        """
        return cls(
            m1=sampler.integer("m1", 1, largest, log=True),
            m2=sampler.integer("m2", 1, largest, log=True),
            r=sampler.real("r", 1e-3, 0.5, log=True),
            sigma_star=0.0 if slot.residual else 1.0,
        ).clamped(slot)

    def check(self, slot: Slot) -> None:
        """Both counts are at most the shorter side."""
        self.check_slot(slot)
        for name, count in (("m1", self.m1), ("m2", self.m2)):
            refuse_outside(name, count, slot, most=slot.smaller_side)

    def clamped(self, slot: Slot) -> Self:
        """Both counts at most the shorter side."""
        most = slot.smaller_side
        return self.model_copy(update={"m1": min(self.m1, most), "m2": min(self.m2, most)})

    def parameter_count(self, slot: Slot) -> int:
        """`R(out, m1) + R(in, m2) + min(in, out)` per matrix, less 1 for each 1 x 1 reflector."""
        return slot.num_matrices * (
            trainable_entries(slot.out_features, self.m1)
            + trainable_entries(slot.in_features, self.m2)
            + slot.smaller_side
        )

    def paper_count(self, slot: Slot) -> int:
        """The same with 1 x 1 reflectors counted."""
        return slot.num_matrices * (
            staircase_entries(slot.out_features, self.m1)
            + staircase_entries(slot.in_features, self.m2)
            + slot.smaller_side
        )

    def working_numbers(self, slot: Slot) -> int:
        """The reflectors of both sides, and what they make up."""
        rows, columns = slot.out_features, slot.in_features
        pays = rows == columns and factored_form_pays(self.m1 + self.m2, rows)
        entries = self.m1 * rows + self.m2 * columns
        dense = None if pays else rows * columns
        return slot.num_matrices * reflector_numbers(entries=entries, size=dense)

    def build(self, slot: Slot, *, generator: torch.Generator) -> StructuredLinear:
        """Independent Glorot-uniform reflectors on both sides; singular values at sigma_star.

        Around sigma_star = 0 they are those of p drawn from N(0, 1).
        """
        self.check(slot)
        return HouseholderSvdLinear(
            slot,
            m1=self.m1,
            m2=self.m2,
            spectrum=_SPECTRA[self.bound](self.sigma_star, self.r),
            penalty_weight=self.penalty,
            match_learning_rate=self.sigma_learning_rate == "matched",
            generator=generator,
        )


class HouseholderSvdLinear(StructuredLinear, Projected):
    """Stores the reflectors' nonzero entries and p `[G, min(out, in)]`, of which s is made."""

    def __init__(
        self,
        slot: Slot,
        *,
        m1: int,
        m2: int,
        spectrum: Spectrum,
        penalty_weight: float,
        match_learning_rate: bool,
        generator: torch.Generator,
    ) -> None:
        super().__init__(slot)
        self.spectrum = spectrum
        self.penalty_weight: float | Tensor = penalty_weight
        self.match_learning_rate = match_learning_rate
        self.u = _reflectors(slot.out_features, m1, slot.num_matrices, generator=generator)
        self.v = _reflectors(slot.in_features, m2, slot.num_matrices, generator=generator)
        start = torch.zeros(slot.num_matrices, slot.smaller_side)
        if spectrum.centre == 0:
            normal_(start, 1.0, generator=generator)
        if not start.is_meta:
            inside = SigmoidSpectrum(spectrum.centre, spectrum.radius).values(start)
            start = spectrum.parameters(inside)
        self.p = nn.Parameter(start)

    @property
    def _rank(self) -> int:
        return self.u.count + self.v.count

    @property
    def _factored(self) -> bool:
        return self.in_features == self.out_features and factored_form_pays(
            self._rank, self.in_features
        )

    def singular_values(self) -> Tensor:
        """S `[G, min(out, in)]`, in at least single precision."""
        return self.spectrum.values(raised(self.p))

    @property
    def sigma_star(self) -> float | Tensor:
        """The middle of the interval of s."""
        return self.spectrum.centre

    def make_form(self) -> DenseForm | LowRankForm:
        """Diagonal plus low rank where that is the cheaper product, else W."""
        # The 1 x 1 reflectors are signs, and act on the last singular value.
        signed = self.v.signed(self.u.signed(self.singular_values()))
        sides = self.u.rows(), self.v.rows(), signed
        dtype = self.p.dtype
        if self._factored:
            diagonal, left, right = svd_diagonal_low_rank(*sides)
            return LowRankForm(left.to(dtype), right.to(dtype), diagonal.to(dtype))
        return DenseForm(svd_weight(*sides).to(dtype))

    def degrees_of_freedom(self) -> int:
        """Directions of the reflectors and the singular values, at most the entries of W."""
        free = self.u.degrees_of_freedom() + self.v.degrees_of_freedom() + self.p.numel()
        return min(free, self.num_matrices * self.in_features * self.out_features)

    def penalty(self) -> Tensor | None:
        """`0.5 lambda sum |s - sigma_star|^2` over all matrices (the papers' sum, not a mean)."""
        if not isinstance(self.penalty_weight, Tensor) and self.penalty_weight == 0:
            return None
        distances = self.singular_values() - self.spectrum.centre
        return 0.5 * self.penalty_weight * distances.square().sum()

    def reals(self) -> Mapping[str, float]:
        """The interval and lambda."""
        interval = {"centre": self.spectrum.centre, "radius": self.spectrum.radius}
        return {**interval, "penalty": float(self.penalty_weight)}

    def use_reals(self, reals: Mapping[str, Tensor]) -> None:
        """See `reals`."""
        self.spectrum = with_interval(self.spectrum, reals["centre"], reals["radius"])
        self.penalty_weight = reals["penalty"]

    def learning_rate_scales(self) -> Mapping[str, float]:
        """`ds/dp <= r / 2` behind a sigmoid: matched, p steps 1 / (2 r) times as far."""
        return {"p": self.spectrum.learning_rate_scale} if self.match_learning_rate else {}

    @torch.no_grad()
    def project_(self) -> None:
        """Bring the singular values back into their interval, in place."""
        self.spectrum.project_(self.p)


def _reflectors(
    size: int, count: int, num_matrices: int, *, generator: torch.Generator
) -> Staircase:
    """Glorot-uniform on the full `count x size` array, as released with the paper."""
    limit = glorot_limit(size, count)
    start = partial(uniform_, low=-limit, high=limit, generator=generator)
    return Staircase(size, count, num_matrices=num_matrices, start=start)
