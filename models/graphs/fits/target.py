"""One matrix that is to be fitted, with what is known of it."""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from models.graphs.fits.factors import balanced, best_factors
from models.graphs.fits.packing import StoredBits
from models.graphs.fits.roundings import rounded
from models.graphs.fits.second_moments import DiagonalMoments, Double, FullMoments, SecondMoments
from models.graphs.fits.stored import Floats, Stored
from models.graphs.layers import AnyArray, Element, Matrix

_STORED_BITS: dict[int, StoredBits] = {2: 2, 3: 3, 4: 4, 8: 8}


@dataclass(frozen=True, eq=False)
class Target:
    """The matrix W `[out, in]` of one direction."""

    matrix: Matrix
    moments: SecondMoments
    """Of what W reads."""
    row_frequencies: NDArray[np.float64] | None
    """How often each row is looked up, if W is a table."""
    element: Element
    compensated: bool
    _remainders: "dict[tuple[int, int], tuple[Stored, Target]]" = field(
        default_factory=dict["tuple[int, int]", "tuple[Stored, Target]"], init=False
    )

    @cached_property
    def _factors(self) -> tuple[Double, Double]:
        if self.row_frequencies is None:
            return best_factors(self.matrix, self.moments)
        # Frequencies of rows are the moments of what the transposed table reads.
        left, right = best_factors(self.matrix.T, DiagonalMoments(self.row_frequencies))
        return right.T, left.T

    def stored(self, bits: int, group: int) -> Stored:
        """W itself, in so many bits (32: as it is)."""
        return self._stored(self.matrix, bits, group, self.moments)

    def factors(self, rank: int, bits: int, group: int) -> tuple[Stored, Stored]:
        """`L^T` `[rank, out]` and R `[rank, in]`, the best of this rank, in so many bits.

        R is rounded by what W reads, and L by what R makes of that as it was rounded.
        """
        left, right = balanced(self._factors[0][:, :rank], self._factors[1][:rank])
        stored_right = self._stored(right, bits, group, self.moments)
        turned = np.ascontiguousarray(left.T)
        if not self._compensates(bits):
            alike = DiagonalMoments.alike(turned.shape[1])
            return self._stored(turned, bits, group, alike), stored_right
        values = stored_right.values().astype(np.float64)
        seen = FullMoments(self.moments.times(values) @ values.T)
        return self._stored(turned, bits, group, seen, turned=True), stored_right

    def remainder(self, bits: int, group: int) -> "tuple[Stored, Target]":
        """W in so many bits, and what is missing then, which is a target itself."""
        key = (bits, group)
        if key not in self._remainders:
            stored = self.stored(bits, group)
            rest = Target(
                self.matrix - stored.values(),
                self.moments,
                self.row_frequencies,
                self.element,
                self.compensated,
            )
            self._remainders[key] = (stored, rest)
        return self._remainders[key]

    def energy(self, matrix: Matrix) -> float:
        """`tr(M C M^T)` of a matrix M `[out, in]` in the place of W."""
        if self.row_frequencies is None:
            return self.moments.energy(matrix)
        return float(self.row_frequencies @ np.square(matrix.astype(np.float64)).sum(1))

    def _compensates(self, bits: int) -> bool:
        return self.compensated and bits < 8

    def _stored(
        self,
        matrix: AnyArray,
        bits: int,
        group: int,
        moments: SecondMoments,
        *,
        turned: bool = False,
    ) -> Stored:
        if bits == 32:
            return Floats.of(matrix, self.element)
        return rounded(
            matrix.astype(np.float32),
            _STORED_BITS[bits],
            group,
            moments,
            compensated=self._compensates(bits),
            turned=turned,
        )
