"""A layer in few bits, and a correction of low rank."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field

from models.graphs.fits.choice import (
    LEFT,
    RIGHT,
    WEIGHT,
    Choice,
    Part,
    bits_label,
    groups,
    product,
    rank_refusal,
    ranks,
)
from models.graphs.fits.stored import Stored
from models.graphs.fits.target import Target
from models.graphs.layers import Layer, Matrix, NodeWriter

FewBits: TypeAlias = Literal[2, 3, 4]
CORRECTIONS = (0.04, 0.1, 0.2)
"""Shares of the rank at which factors break even."""
CORRECTION_BITS = 8


class Corrected(Choice):
    """`W = Q + L R`: Q in few bits, and factors in 8 bits that are best for what Q lost."""

    title: ClassVar[str] = "Few bits and a correction"

    kind: Literal["corrected"] = "corrected"
    bits: FewBits = Field(description="bits of a number of Q")
    rank: int = Field(ge=1, description="columns of L and rows of R")
    group: int = Field(default=0, ge=0, description="columns that share a scale; 0: a whole row")

    @classmethod
    def offers(cls, layer: Layer) -> Iterator[Self]:
        """2, 3 and 4 bits with three small ranks."""
        if not layer.structured:
            return
        few: tuple[FewBits, ...] = (4, 3, 2)
        for bits in few:
            for group in groups(layer.columns):
                for rank in ranks(layer, CORRECTIONS):
                    yield cls(bits=bits, rank=rank, group=group)

    @property
    def label(self) -> str:
        """The bits of Q, and the correction's rank."""
        return f"{bits_label(self.bits, self.group)} + rank {self.rank}"

    def refusal(self, layer: Layer) -> str | None:
        """Layers without factors, and ranks that are too large."""
        return rank_refusal(layer, self.rank)

    def parts(self, layer: Layer) -> Mapping[str, Part]:
        """Q, `L^T` and R."""
        return {
            WEIGHT: Part(layer.rows, layer.columns, self.bits, self.group),
            LEFT: Part(self.rank, layer.rows, CORRECTION_BITS, self.group),
            RIGHT: Part(self.rank, layer.columns, CORRECTION_BITS, self.group),
        }

    def fit(self, target: Target) -> Mapping[str, Stored]:
        """Q, and the best factors of what is missing."""
        weight, rest = target.remainder(self.bits, self.group)
        left, right = rest.factors(self.rank, CORRECTION_BITS, self.group)
        return {WEIGHT: weight, LEFT: left, RIGHT: right}

    def matrix(self, parts: Mapping[str, Stored]) -> Matrix:
        """Their sum."""
        correction = parts[LEFT].values().T @ parts[RIGHT].values()
        return np.add(parts[WEIGHT].values(), correction, dtype=np.float32)

    def assemble(self, writer: NodeWriter, parts: Mapping[str, str], layer: Layer) -> str:
        """Their sum."""
        correction = product(writer, parts[LEFT], parts[RIGHT], self.rank, layer)
        weight = parts[WEIGHT]
        if layer.directions > 1:
            sizes = writer.integers(layer.directions, layer.rows, layer.columns)
            weight = writer.node("Reshape", weight, sizes)
        return writer.node("Add", weight, correction)
