"""Fitting choices to a layer, and what is lost by them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.graphs.fits.choices import AnyChoice
from models.graphs.fits.second_moments import DiagonalMoments
from models.graphs.fits.statistics import Statistics
from models.graphs.fits.stored import Stored, stacked
from models.graphs.fits.target import Target
from models.graphs.layers import Layer, Matrix

UNKNOWN = Statistics()
"""Of a layer of which nothing is known."""


@dataclass(frozen=True, eq=False)
class Fit:
    """A choice with the numbers that it stores."""

    choice: AnyChoice
    parts: Mapping[str, Stored]
    """Those of all directions under each other; empty where the layer stays as it is."""
    error: float
    """`sum tr(E C E^T) / sum tr(W C W^T)` over the directions, E what the matrices lost."""

    @property
    def bytes(self) -> int:
        """What the parts take in a file."""
        return sum(part.bytes for part in self.parts.values())

    def matrices(self, layer: Layer) -> Matrix:
        """The matrices `[G, out, in]` that the parts make."""
        if not self.parts:
            return layer.matrices
        each = {name: part.split(layer.directions) for name, part in self.parts.items()}
        return np.stack(
            [
                self.choice.matrix({name: parts[place] for name, parts in each.items()})
                for place in range(layer.directions)
            ]
        )


class LayerFitter:
    """Fits choices to one layer; whatever serves several of them is computed once."""

    def __init__(self, layer: Layer, statistics: Statistics = UNKNOWN) -> None:
        """Without moments, all vectors count as alike."""
        self.layer = layer
        self.statistics = statistics
        self._targets: dict[bool, tuple[Target, ...]] = {}
        self._fits: dict[tuple[AnyChoice, bool], Fit] = {}

    def fit(self, choice: AnyChoice, *, compensated: bool = True) -> Fit:
        """The parts of a choice; below 8 bits by compensated rounding, or each number by itself.

        Raises:
            ConversionError: the layer cannot be stored so; says what is allowed.
        """
        choice.refuse(self.layer)
        key = (choice, compensated)
        if key not in self._fits:
            self._fits[key] = self._fit(choice, compensated)
        return self._fits[key]

    def _fit(self, choice: AnyChoice, compensated: bool) -> Fit:
        if choice.unchanged:
            return Fit(choice, {}, 0.0)
        if compensated not in self._targets:
            self._targets[compensated] = self._made_targets(compensated)
        targets = self._targets[compensated]
        found = [choice.fit(target) for target in targets]
        error = _error(targets, [choice.matrix(parts) for parts in found])
        parts = {name: stacked([parts[name] for parts in found]) for name in found[0]}
        return Fit(choice, parts, error)

    def _made_targets(self, compensated: bool) -> tuple[Target, ...]:
        layer, known = self.layer, self.statistics
        element = layer.element
        assert element is not None, "layers that are quantized already are refused"
        moments = known.moments or (DiagonalMoments.alike(layer.columns),) * layer.directions
        return tuple(
            Target(matrix, one, known.row_frequencies, element, compensated)
            for matrix, one in zip(layer.matrices, moments, strict=True)
        )


def local_error(layer: Layer, statistics: Statistics, matrices: Matrix) -> float:
    """`sum tr(E C E^T) / sum tr(W C W^T)` of matrices `[G, out, in]` in place of a layer's.

    C are the moments of what is read, or the frequencies of rows; without either, all alike.
    """
    moments = statistics.moments or (DiagonalMoments.alike(layer.columns),) * layer.directions
    targets = [
        Target(matrix, one, statistics.row_frequencies, "float32", compensated=False)
        for matrix, one in zip(layer.matrices, moments, strict=True)
    ]
    return _error(targets, list(matrices))


def _error(targets: Sequence[Target], matrices: Sequence[Matrix]) -> float:
    pairs = zip(targets, matrices, strict=True)
    lost = sum(target.energy(matrix - target.matrix) for target, matrix in pairs)
    whole = sum(target.energy(target.matrix) for target in targets)
    # A layer of zeros is met exactly or not at all.
    return lost / whole if whole > 0 else lost
