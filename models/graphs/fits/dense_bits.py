"""A layer as it is, or with each of its numbers in a few bits."""

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field

from models.graphs.fits.choice import WEIGHT, Bits, Choice, Part, bits_label, bits_refusal, groups
from models.graphs.fits.stored import Stored
from models.graphs.fits.target import Target
from models.graphs.layers import Layer, Matrix, NodeWriter


class Dense(Choice):
    """All numbers of a layer; 32 bits leave it as it is."""

    title: ClassVar[str] = "Dense"
    has_structure: ClassVar[bool] = False

    kind: Literal["dense"] = "dense"
    bits: Bits = Field(default=32, description="bits of a number; 32: as in the file")
    group: int = Field(default=0, ge=0, description="columns that share a scale; 0: a whole row")

    @classmethod
    def offers(cls, layer: Layer) -> Iterator[Self]:
        """As it is, and 8, 4, 3 and 2 bits; 2 bits with scales for blocks alone."""
        yield cls()
        if layer.quantized:
            return
        for bits in (8, 4, 3, 2):
            for group in groups(layer.columns):
                if bits > 2 or group:
                    yield cls(bits=bits, group=group)

    @property
    def label(self) -> str:
        """The bits of a number."""
        return "as it is" if self.unchanged else bits_label(self.bits, self.group)

    def refusal(self, layer: Layer) -> str | None:
        """A layer that is quantized already stays so."""
        return None if self.unchanged else bits_refusal(layer)

    def parts(self, layer: Layer) -> Mapping[str, Part]:
        """The matrix."""
        return {WEIGHT: Part(layer.rows, layer.columns, self.bits, self.group)}

    def bytes(self, layer: Layer) -> int:
        """Of 32 bits what it takes already."""
        return layer.stored_bytes if self.unchanged else super().bytes(layer)

    def fit(self, target: Target) -> Mapping[str, Stored]:
        """The matrix, rounded."""
        return {WEIGHT: target.stored(self.bits, self.group)}

    def matrix(self, parts: Mapping[str, Stored]) -> Matrix:
        """The part itself."""
        return parts[WEIGHT].values()

    def assemble(self, writer: NodeWriter, parts: Mapping[str, str], layer: Layer) -> str:
        """Nothing is to be done."""
        del writer, layer
        return parts[WEIGHT]

    @property
    def unchanged(self) -> bool:
        """With 32 bits."""
        return self.bits == 32
