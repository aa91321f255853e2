"""How a tensor of a file becomes matrices, and the reverse."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Arrangement:
    """A weight of shape `native` as matrices `[G, out, in]`: its axes permuted, then reshaped."""

    native: tuple[int, ...]
    matrices: tuple[int, int, int]
    """`[G, out, in]`"""
    permutation: tuple[int, ...] = ()
    """The order of the native axes within the matrices; empty: as they are."""

    @classmethod
    def of_rows(
        cls,
        native: tuple[int, ...],
        *,
        directions: int = 1,
        columns: int,
        permutation: tuple[int, ...] = (),
    ) -> "Arrangement":
        """All numbers in rows of `columns`, split among the directions."""
        rows = math.prod(native) // (directions * columns)
        return cls(native, (directions, rows, columns), permutation)

    @property
    def permuted(self) -> tuple[int, ...]:
        """The native shape with its axes permuted."""
        return tuple(self.native[axis] for axis in self.permutation) or self.native

    @property
    def restoring(self) -> tuple[int, ...]:
        """The permutation that undoes this one."""
        return tuple(int(axis) for axis in np.argsort(self.permutation))

    def arranged(self, value: NDArray[Any]) -> NDArray[Any]:
        """The matrices `[G, out, in]` of a native tensor."""
        turned = value.transpose(self.permutation) if self.permutation else value
        return np.ascontiguousarray(turned).reshape(self.matrices)

    def restored(self, matrices: NDArray[Any]) -> NDArray[Any]:
        """The native tensor of matrices `[G, out, in]`."""
        turned = matrices.reshape(self.permuted)
        return turned.transpose(self.restoring) if self.permutation else turned
