"""A layer's fit as numbers that are trained, and the fit that comes of them."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models.graphs.fits import Fit, Floats, Rounded, Stored, local_error
from models.graphs.fits.statistics import Statistics
from models.graphs.interpreter import Numbers, RoundedNumbers, ShapedWeight, weight_of
from models.graphs.layers import Layer


class LayerWeight(nn.Module):
    """Stands for the initializer of a layer, in the file's shape and in single precision."""

    def __init__(self, layer: Layer, fit: Fit) -> None:
        """Begin with what a fit stores; the whole begins as near to the layer as it can be."""
        super().__init__()
        rows = layer.directions * layer.rows
        matrix = torch.as_tensor(layer.matrices.reshape(rows, layer.columns).astype(np.float32))
        parts = {name: _numbers(part) for name, part in fit.parts.items()}
        arrangement = layer.role.arrangement
        self._layer, self._fit = layer, fit
        self.weight = ShapedWeight(
            weight_of(parts, matrix=matrix, directions=layer.directions),
            arrangement.native,
            arrangement.permutation,
        )

    def forward(self) -> Tensor:
        """The tensor, differentiable in what is trained."""
        return self.weight()

    def fit(self) -> Fit:
        """The fit of the numbers as they are now, rounded; its error is still that of before."""
        parts = {
            name: _stored(numbers, self._layer) for name, numbers in self.weight.stored().items()
        }
        return Fit(self._fit.choice, parts, self._fit.error)

    def error(self, statistics: Statistics) -> float:
        """The local error of the numbers as they are now, see `Fit.error`."""
        return local_error(self._layer, statistics, self.fit().matrices(self._layer))


def _numbers(part: Stored) -> Numbers:
    return _NUMBERS[type(part)](part)


def _rounded_numbers(part: Rounded) -> Numbers:
    return RoundedNumbers(integers=part.integers, scales=part.scales, bits=part.bits)


def _full_numbers(part: Floats) -> Numbers:
    return part.numbers


_NUMBERS: Mapping[type[Stored], Callable[[Any], Numbers]] = {
    Rounded: _rounded_numbers,
    Floats: _full_numbers,
}


def _stored(numbers: Numbers, layer: Layer) -> Stored:
    if isinstance(numbers, RoundedNumbers):
        return Rounded(numbers.integers, numbers.scales, bits=numbers.bits)
    assert layer.element is not None, "layers that are quantized already have no fits"
    return Floats.of(numbers, layer.element)
