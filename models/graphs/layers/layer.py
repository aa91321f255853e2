"""A weight of a graph, as matrices."""

from dataclasses import dataclass

from models.graphs.layers.role import AnyArray, Element, Operand, Role, Spatial

SMALLEST = 1024
"""Weights of fewer numbers are left as they are."""


@dataclass(frozen=True)
class Reader:
    """A node that reads a weight."""

    node: int
    """Its place among the graph's nodes."""
    place: int
    """Which of its inputs the weight is."""
    role: Role


@dataclass(frozen=True, kw_only=True, eq=False)
class Layer:
    """A weight that a graph's nodes read."""

    name: str
    """Unique among the layers: the initializer's, or `Operator.node` if a tool made that up."""
    weight: str
    """The name of the initializer."""
    operator: str
    """Of the first node that reads it."""
    readers: tuple[Reader, ...]
    """Nodes of the graph itself; those in bodies of `If`, `Loop` and `Scan` are not named."""
    role: Role
    """How all readers read it; where they differ, by its rows."""
    matrices: AnyArray
    """`[G, out, in]`, G the number of directions: float32, or the file's own integers."""
    element: Element | None
    """The type in the file; None where it is quantized already."""
    structured: bool
    """Whether a product of two matrices may take its place."""
    runs: bool
    """Whether two factors may be applied one by one."""
    stored_bytes: int
    """What its numbers take in the file, in bytes."""

    @property
    def native(self) -> tuple[int, ...]:
        """The weight's shape in the file."""
        return self.role.arrangement.native

    @property
    def directions(self) -> int:
        """G."""
        return self.matrices.shape[0]

    @property
    def rows(self) -> int:
        """How many numbers each matrix makes (out)."""
        return self.matrices.shape[1]

    @property
    def columns(self) -> int:
        """How many numbers each matrix reads (in)."""
        return self.matrices.shape[2]

    @property
    def break_even(self) -> float:
        """The rank at which two factors have as many numbers as one matrix."""
        return self.rows * self.columns / (self.rows + self.columns)

    @property
    def quantized(self) -> bool:
        """Whether the file stores it as integers already; then it is left alone."""
        return self.role.quantized

    @property
    def spatial(self) -> Spatial | None:
        """The window of a convolution."""
        return self.role.spatial

    @property
    def reads(self) -> tuple[tuple[int, Operand], ...]:
        """The values that it reads: a node's place and which of its values, for each reader."""
        return tuple(
            (reader.node, operand) for reader in self.readers for operand in reader.role.operands()
        )
