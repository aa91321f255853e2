"""Weights of convolutions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
import onnx
from onnx import helper

from models.graphs.layers.arrangement import Arrangement
from models.graphs.layers.node_writer import NodeWriter
from models.graphs.layers.patches import patches, window_counts
from models.graphs.layers.role import (
    AnyArray,
    Operand,
    Reading,
    Role,
    Spatial,
    Use,
    whole_number,
)


@dataclass(frozen=True)
class _Convolution(Role):
    """What all convolutions have: a window that is moved over an input."""

    window: Spatial

    @property
    def spatial(self) -> Spatial:
        """The window."""
        return self.window

    def operands(self) -> tuple[Operand, ...]:
        """What is convolved."""
        return (Operand("input", 0),)


@dataclass(frozen=True)
class ConvolutionRole(_Convolution):
    """A convolution of one group, as a matrix `[out, in * k]` that patches are multiplied by."""

    kind: ClassVar[str] = "convolution"
    structured: ClassVar[bool] = True
    runnable: ClassVar[bool] = True

    @classmethod
    def of(cls, use: Use) -> Self | None:
        """The weight of a `Conv` of one group."""
        if not _is_convolution(use, "Conv") or whole_number(use, "group", 1) != 1:
            return None
        return cls(_by_first_axis(use.native), spatial_of(use))

    @property
    def numbers_per_channel(self) -> int:
        """The numbers of the kernel."""
        return math.prod(self.window.kernel)

    def read(
        self, values: Sequence[AnyArray | None], generator: np.random.Generator, most: int
    ) -> Reading:
        """Up to `most` patches, drawn without repetition."""
        (value,) = values
        if value is None:
            return Reading(positions=0)
        vectors, positions = patches(value, self.window, generator, most)
        return Reading(positions=positions, vectors=(vectors,))

    def run_factors(
        self, writer: NodeWriter, node: onnx.NodeProto, left: str, right: str, rank: int
    ) -> None:
        """A convolution to `rank` channels with the same window, and one of kernel 1."""
        out, channels, *kernel = self.arrangement.native
        first = writer.node("Reshape", right, writer.integers(rank, channels, *kernel))
        turned = writer.node("Transpose", left, perm=[1, 0])
        ones = (1 for _ in kernel)
        second = writer.node("Reshape", turned, writer.integers(out, rank, *ones))
        attributes = {entry.name: helper.get_attribute_value(entry) for entry in node.attribute}
        inner = writer.node("Conv", node.input[0], first, **attributes)
        writer.node("Conv", inner, second, *node.input[2:], output=node.output[0])


@dataclass(frozen=True)
class GroupedConvolutionRole(_Convolution):
    """A convolution of several groups, or one for each channel; only its bits change."""

    kind: ClassVar[str] = "grouped_convolution"

    @classmethod
    def of(cls, use: Use) -> Self | None:
        """The weight of a `Conv` of more than one group."""
        if not _is_convolution(use, "Conv"):
            return None
        return cls(_by_first_axis(use.native), spatial_of(use))

    def read(
        self, values: Sequence[AnyArray | None], generator: np.random.Generator, most: int
    ) -> Reading:
        """The number of patches alone."""
        del generator, most
        (value,) = values
        if value is None:
            return Reading(positions=0)
        counts = window_counts(value.shape[2:], self.window)
        return Reading(positions=len(value) * math.prod(counts))


@dataclass(frozen=True)
class TransposedConvolutionRole(_Convolution):
    """A transposed convolution `[in, out / groups, k]`; only its bits change."""

    kind: ClassVar[str] = "transposed_convolution"

    @classmethod
    def of(cls, use: Use) -> Self | None:
        """The weight of a `ConvTranspose`: with one group, a row makes an output channel."""
        if not _is_convolution(use, "ConvTranspose"):
            return None
        one = whole_number(use, "group", 1) == 1
        axes = tuple(range(2, len(use.native)))
        arrangement = (
            Arrangement.of_rows(
                use.native,
                columns=math.prod(use.native) // use.native[1],
                permutation=(1, 0, *axes),
            )
            if one
            else _by_first_axis(use.native)
        )
        return cls(arrangement, spatial_of(use))

    def read(
        self, values: Sequence[AnyArray | None], generator: np.random.Generator, most: int
    ) -> Reading:
        """The number of input positions: each is multiplied by the whole kernel."""
        del generator, most
        (value,) = values
        if value is None:
            return Reading(positions=0)
        return Reading(positions=len(value) * math.prod(value.shape[2:]))


def spatial_of(use: Use) -> Spatial:
    """The window of a convolution, with the defaults of ONNX."""
    kernel = use.native[2:]
    attributes = use.attributes
    ones = [1] * len(kernel)
    auto = attributes.get("auto_pad", b"NOTSET")
    return Spatial(
        kernel=kernel,
        strides=tuple(attributes.get("strides", ones)),
        dilations=tuple(attributes.get("dilations", ones)),
        pads=tuple(attributes.get("pads", [0] * 2 * len(kernel))),
        auto_pad=bytes(auto).decode(),
    )


def _is_convolution(use: Use, operator: str) -> bool:
    return use.node.op_type == operator and use.place == 1 and len(use.native) > 2


def _by_first_axis(native: tuple[int, ...]) -> Arrangement:
    return Arrangement.of_rows(native, columns=math.prod(native[1:]))
