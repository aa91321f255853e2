"""A layer as a product of two thin matrices."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from models.graphs.fits.choice import (
    LEFT,
    RIGHT,
    Bits,
    Choice,
    Part,
    bits_label,
    groups,
    product,
    rank_refusal,
)
from models.graphs.fits.choice import ranks as ranks_at
from models.graphs.fits.stored import Stored
from models.graphs.fits.target import Target
from models.graphs.layers import Layer, Matrix, NodeWriter

RANKS = (0.8, 0.6, 0.45, 0.3, 0.2, 0.12)
"""Shares of the rank at which factors break even."""


class LowRank(Choice):
    """`W = L R`, the best of its rank by what the layer reads; with `run` applied one by one."""

    title: ClassVar[str] = "Low rank"

    kind: Literal["low_rank"] = "low_rank"
    rank: int = Field(ge=1, description="columns of L and rows of R")
    bits: Bits = Field(default=32, description="bits of a number; 32: as in the file")
    group: int = Field(default=0, ge=0, description="columns that share a scale; 0: a whole row")
    run: bool = Field(
        default=False, description="whether R and L are applied one by one, which saves time"
    )

    @classmethod
    def offers(cls, layer: Layer) -> Iterator[Self]:
        """Six ranks below break-even in 32, 8, 4 and 3 bits; also with `run` if allowed."""
        if not layer.structured:
            return
        for run in (False, True) if layer.runs else (False,):
            for bits in (32, 8, 4, 3):
                for group in groups(layer.columns) if bits < 32 else (0,):
                    for rank in ranks_at(layer, RANKS):
                        yield cls(rank=rank, bits=bits, group=group, run=run)

    @property
    def label(self) -> str:
        """Rank, bits, and whether factors are applied one by one."""
        run = ", run" if self.run else ""
        return f"rank {self.rank}, {bits_label(self.bits, self.group)}{run}"

    def refusal(self, layer: Layer) -> str | None:
        """Layers without factors, ranks that are too large, and factors that cannot run."""
        reason = rank_refusal(layer, self.rank)
        if reason is None and self.run and not layer.runs:
            return "its factors cannot be run one by one; allowed is run false"
        return reason

    def parts(self, layer: Layer) -> Mapping[str, Part]:
        """`L^T` and R."""
        return {
            LEFT: Part(self.rank, layer.rows, self.bits, self.group),
            RIGHT: Part(self.rank, layer.columns, self.bits, self.group),
        }

    def fit(self, target: Target) -> Mapping[str, Stored]:
        """The best factors, rounded."""
        left, right = target.factors(self.rank, self.bits, self.group)
        return {LEFT: left, RIGHT: right}

    def matrix(self, parts: Mapping[str, Stored]) -> Matrix:
        """Their product."""
        return parts[LEFT].values().T @ parts[RIGHT].values()

    def assemble(self, writer: NodeWriter, parts: Mapping[str, str], layer: Layer) -> str:
        """Their product."""
        return product(writer, parts[LEFT], parts[RIGHT], self.rank, layer)

    @property
    def runs_factors(self) -> bool:
        """With `run`."""
        return self.run

    def multiply_adds(self, layer: Layer) -> int:
        """With `run` those of two thin products."""
        if not self.run:
            return super().multiply_adds(layer)
        return layer.directions * self.rank * (layer.rows + layer.columns)
