"""The base of all choices: what may be stored in place of a layer's matrices."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar, Literal, Self, TypeAlias

import numpy as np

from models.errors import ConversionError
from models.graphs.fits.packing import packed_bytes
from models.graphs.fits.stored import Stored, blocks_of
from models.graphs.fits.target import Target
from models.graphs.layers import Layer, Matrix, NodeWriter
from models.spec import Spec

Bits: TypeAlias = Literal[2, 3, 4, 8, 32]
GROUP, SMALLEST_GROUP = 32, 16
"""Columns that may share a scale where a search divides rows into blocks."""
LEFT, RIGHT, WEIGHT = "left", "right", "weight"
"""Names of parts: `L^T` `[rank, out]`, R `[rank, in]`, and a whole matrix `[out, in]`."""


@dataclass(frozen=True)
class Part:
    """A matrix `[rows, columns]` that a choice stores for each direction."""

    rows: int
    columns: int
    bits: int
    group: int

    def bytes(self, layer: Layer) -> int:
        """What it takes for all directions, in bytes."""
        rows = self.rows * layer.directions
        count = rows * self.columns
        if self.bits == 32:
            return count * np.dtype(layer.element).itemsize
        scales = rows * blocks_of(self.columns, self.group)
        return packed_bytes(count, self.bits) + 2 * scales


class Choice(Spec, ABC):
    """How a layer is stored; a new kind is a file, and a name in `choices.py`."""

    title: ClassVar[str]
    has_structure: ClassVar[bool] = True
    """Whether it has factors; else its numbers alone are rounded, as other tools do it."""

    @classmethod
    @abstractmethod
    def offers(cls, layer: Layer) -> Iterator[Self]:
        """All that a search tries of this kind, whatever they cost."""

    @abstractmethod
    def refusal(self, layer: Layer) -> str | None:
        """Why a layer cannot be stored so, with what is allowed; None if it can."""

    @abstractmethod
    def parts(self, layer: Layer) -> Mapping[str, Part]:
        """The matrices that are stored, by name."""

    @abstractmethod
    def fit(self, target: Target) -> Mapping[str, Stored]:
        """The parts of one direction's matrix."""

    @abstractmethod
    def matrix(self, parts: Mapping[str, Stored]) -> Matrix:
        """The matrix `[out, in]` that the parts of one direction make."""

    @abstractmethod
    def assemble(self, writer: NodeWriter, parts: Mapping[str, str], layer: Layer) -> str:
        """Nodes that make the matrices, `[G, out, in]` or `[G * out, in]`, of their parts.

        Parts are values `[G * rows, columns]` of type float32.
        """

    @property
    @abstractmethod
    def label(self) -> str:
        """What it is, in a few words for a table."""

    @property
    def unchanged(self) -> bool:
        """Whether the layer stays as it is in the file."""
        return False

    @property
    def runs_factors(self) -> bool:
        """Whether the parts `left` and `right` are applied one by one."""
        return False

    def bytes(self, layer: Layer) -> int:
        """What its numbers take in a file, exactly; nodes and names are not in it."""
        return sum(part.bytes(layer) for part in self.parts(layer).values())

    def numbers(self, layer: Layer) -> int:
        """How many numbers it stores; scales are not in it."""
        parts = self.parts(layer).values()
        return layer.directions * sum(part.rows * part.columns for part in parts)

    def multiply_adds(self, layer: Layer) -> int:
        """For one vector at each direction."""
        return layer.matrices.size

    def refuse(self, layer: Layer) -> None:
        """Refuse a layer that cannot be stored so.

        Raises:
            ConversionError: names the layer and what is allowed.
        """
        reason = self.refusal(layer)
        if reason is not None:
            raise ConversionError(f"{layer.name} ({layer.operator}): {reason}")


def bits_label(bits: int, group: int) -> str:
    """Bits and blocks in words."""
    return f"{bits} bits, blocks of {group}" if group else f"{bits} bits"


def bits_refusal(layer: Layer) -> str | None:
    """Why a layer's numbers cannot be rounded."""
    return "it is already quantized; allowed is 32 bits" if layer.quantized else None


def rank_refusal(layer: Layer, rank: int) -> str | None:
    """Why a layer cannot have factors of this rank."""
    if layer.quantized or not layer.structured:
        return f"it has no factors as {layer.role.kind}; allowed is kind dense"
    most = min(layer.rows, layer.columns)
    return None if rank <= most else f"rank is {rank}; allowed is 1..{most}"


def ranks(layer: Layer, shares: tuple[float, ...]) -> list[int]:
    """Distinct ranks at these shares of the rank at which factors break even."""
    found = (max(1, round(share * layer.break_even)) for share in shares)
    return list(dict.fromkeys(found))


def groups(columns: int) -> tuple[int, ...]:
    """A whole row, and the largest block of 16 to 32 columns that divides it evenly, if any."""
    blocks = (size for size in range(GROUP, SMALLEST_GROUP - 1, -1) if columns % size == 0)
    return (0, *(size for size in islice(blocks, 1) if size < columns))


def product(writer: NodeWriter, left: str, right: str, rank: int, layer: Layer) -> str:
    """L R `[G, out, in]` (`[out, in]` of one direction) of `left` and `right`, all directions'."""
    if layer.directions == 1:
        return writer.node("Gemm", left, right, transA=1)
    stacks = [
        writer.node("Reshape", part, writer.integers(layer.directions, rank, -1))
        for part in (left, right)
    ]
    return writer.node("MatMul", writer.node("Transpose", stacks[0], perm=[0, 2, 1]), stacks[1])
