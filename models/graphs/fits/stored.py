"""Matrices as a file stores them."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray

from models.graphs.fits.packing import StoredBits, packed_bytes, unpacked
from models.graphs.layers import AnyArray, Element, Matrix, NodeWriter


def blocks_of(columns: int, group: int) -> int:
    """The scales of a row: one for each `group` columns; one in all if they do not come out even.

    A group of 0 is a whole row.
    """
    return columns // group if group and columns % group == 0 else 1


class Stored(ABC):
    """A matrix `[rows, columns]` in the form in which a file has it."""

    @property
    @abstractmethod
    def bytes(self) -> int:
        """What its numbers take in a file."""

    @abstractmethod
    def values(self) -> Matrix:
        """The matrix, in single precision."""

    @abstractmethod
    def decoded(self, writer: NodeWriter) -> str:
        """Nodes that make the matrix, of type float32, of what a file stores of it.

        They have no other inputs than constants: onnxruntime computes them as it loads a file.
        """

    @abstractmethod
    def arrays(self) -> tuple[AnyArray, ...]:
        """What it consists of, each with a row for each row of the matrix."""

    @abstractmethod
    def with_arrays(self, *arrays: AnyArray) -> "Stored":
        """The same form of other arrays."""

    def split(self, parts: int) -> list["Stored"]:
        """As many matrices of equally many rows."""
        pieces = zip(*(np.split(array, parts) for array in self.arrays()), strict=True)
        return [self.with_arrays(*arrays) for arrays in pieces]


def stacked(parts: Sequence[Stored]) -> Stored:
    """Matrices of one form under each other."""
    arrays = zip(*(part.arrays() for part in parts), strict=True)
    return parts[0].with_arrays(*(np.concatenate(each) for each in arrays))


@dataclass(frozen=True, eq=False)
class Floats(Stored):
    """The numbers themselves, in the weight's own type."""

    numbers: Matrix
    element: Element = "float32"

    @classmethod
    def of(cls, matrix: NDArray[np.floating], element: Element) -> "Floats":
        """Numbers that are rounded to the type."""
        return cls(matrix.astype(element).astype(np.float32), element)

    @property
    def bytes(self) -> int:
        """4 or 2 a number."""
        return self.numbers.size * np.dtype(self.element).itemsize

    def values(self) -> Matrix:
        """As they are."""
        return self.numbers

    def decoded(self, writer: NodeWriter) -> str:
        """A constant, which is cast if it is not float32."""
        name = writer.constant(self.numbers.astype(self.element))
        if self.element == "float32":
            return name
        return writer.node("Cast", name, to=onnx.TensorProto.FLOAT)

    def arrays(self) -> tuple[AnyArray, ...]:
        """The numbers."""
        return (self.numbers,)

    def with_arrays(self, *arrays: AnyArray) -> "Floats":
        """Of the same type."""
        return Floats(*arrays, element=self.element)


@dataclass(frozen=True, eq=False)
class Rounded(Stored):
    """Integers of 2, 3, 4 or 8 bits, times a scale for each block of a row."""

    integers: NDArray[np.int8]
    """`[rows, columns]`, within `-(2^(bits-1) - 1)..2^(bits-1) - 1`"""
    scales: NDArray[np.float16]
    """`[rows, blocks]`"""
    bits: StoredBits

    @property
    def bytes(self) -> int:
        """Packed integers, and 2 for each scale."""
        return packed_bytes(self.integers.size, self.bits) + 2 * self.scales.size

    def values(self) -> Matrix:
        """Integers times scales."""
        rows, columns = self.integers.shape
        blocks = self.integers.reshape(rows, self.scales.shape[1], -1).astype(np.float32)
        return (blocks * self.scales[:, :, None].astype(np.float32)).reshape(rows, columns)

    def decoded(self, writer: NodeWriter) -> str:
        """Packed integers are unpacked, and multiplied by their scales."""
        rows, columns = self.integers.shape
        blocks = self.scales.shape[1]
        shape = (rows, columns) if blocks == 1 else (rows, blocks, columns // blocks)
        numbers = unpacked(writer, self.integers.reshape(shape), self.bits)
        scales = self.scales if blocks == 1 else self.scales[:, :, None]
        factor = writer.node("Cast", writer.constant(scales), to=onnx.TensorProto.FLOAT)
        value = writer.node("Mul", numbers, factor)
        return (
            value if blocks == 1 else writer.node("Reshape", value, writer.integers(rows, columns))
        )

    def arrays(self) -> tuple[AnyArray, ...]:
        """Integers and scales."""
        return self.integers, self.scales

    def with_arrays(self, *arrays: AnyArray) -> "Rounded":
        """Of as many bits."""
        return Rounded(*arrays, bits=self.bits)
