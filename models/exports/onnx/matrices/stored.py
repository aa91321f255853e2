"""Matrices in a file: stored by their own numbers, and made of them when the file is loaded."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.arithmetic import by_rows, identity, part


@dataclass(frozen=True)
class Factors:
    """`W_g = L_g R_g + diag(D_g)`, by names of values."""

    left: str
    """L [G, out, d]"""
    right: str
    """R [G / s, d, in]; each R serves s consecutive matrices"""
    diagonal: str | None
    """D [G, out], or [G, min(out, in)]"""
    count: int
    """G"""
    num_right: int
    """G / s"""
    rows: int
    """out"""
    columns: int
    """in"""


class Stored:
    """The G matrices `[out, in]` of a slot, or some of them.

    Nodes that make them stand in the outermost graph, before whatever reads them: a loop finds them
    made.
    """

    def __init__(
        self,
        graph: Graph,
        shape: tuple[int, int, int],
        *,
        whole: Callable[[], str] | None = None,
        factors: Callable[[], Factors] | None = None,
    ) -> None:
        """`shape` is that of all matrices; what makes them is called at most once each."""
        self.graph = graph.root
        self.shape = shape
        self._make_whole = whole or self._multiplied
        self._make_factors = factors
        self._whole: str | None = None
        self._factors: Factors | None = None

    def whole(self) -> str:
        """All matrices `[G, out, in]`."""
        if self._whole is None:
            self._whole = self._make_whole()
        return self._whole

    def factors(self) -> Factors | None:
        """The factors, where the matrices have any."""
        if self._factors is None and self._make_factors is not None:
            self._factors = self._make_factors()
        return self._factors

    def split(self, layers: int) -> "list[Stored]":
        """As many equal parts, none of which shares a factor with another one."""
        if layers == 1:
            return [self]
        shape = self.shape[0] // layers, *self.shape[1:]
        has_factors = self._make_factors is not None
        return [
            Stored(
                self.graph,
                shape,
                whole=lambda layer=layer: self._cut(self.whole(), layers)[layer],
                factors=partial(self._layer, layer, layers) if has_factors else None,
            )
            for layer in range(layers)
        ]

    def select(self, start: int, stop: int) -> "Stored":
        """The matrices start..stop-1."""
        if (start, stop) == (0, self.shape[0]):
            return self
        return Stored(
            self.graph,
            (stop - start, *self.shape[1:]),
            whole=lambda: part(self.graph, self.whole(), start, stop),
            factors=None if self._make_factors is None else lambda: self._some(start, stop),
        )

    def without_factors(self) -> "Stored":
        """The same, as if there were only the whole matrices."""
        return Stored(self.graph, self.shape, whole=self.whole)

    def _cut(self, value: str, parts: int) -> list[str]:
        """Equal parts of the first dimension."""
        graph = self.graph
        return graph.once(
            (Stored._cut, value), lambda: graph.apply_many("Split", value, outputs=parts)
        )

    def _layer(self, layer: int, layers: int) -> Factors:
        factors = self.factors()
        assert factors is not None
        diagonal = factors.diagonal
        return replace(
            factors,
            left=self._cut(factors.left, layers)[layer],
            right=self._cut(factors.right, layers)[layer],
            diagonal=None if diagonal is None else self._cut(diagonal, layers)[layer],
            count=factors.count // layers,
            num_right=factors.num_right // layers,
        )

    def _some(self, start: int, stop: int) -> Factors:
        """Matrices that read through one R are taken together, or are some of those of one."""
        factors = self.factors()
        assert factors is not None
        graph, shared = self.graph, factors.count // factors.num_right
        first, last = start // shared, (stop + shared - 1) // shared
        kept = (first, last) == (0, factors.num_right)
        return replace(
            factors,
            left=part(graph, factors.left, start, stop),
            right=factors.right if kept else part(graph, factors.right, first, last),
            diagonal=None
            if factors.diagonal is None
            else part(graph, factors.diagonal, start, stop),
            count=stop - start,
            num_right=last - first,
        )

    def _multiplied(self) -> str:
        """The product of the factors, and the diagonal."""
        factors, graph = self.factors(), self.graph
        assert factors is not None
        count, rows, columns = self.shape
        if factors.num_right in (1, count):
            # Where all matrices read through one R, the product repeats it.
            weight = graph.apply("MatMul", factors.left, factors.right)
        else:
            by_right = graph.integers(factors.num_right, count // factors.num_right, rows, -1)
            left = graph.apply("Reshape", factors.left, by_right)
            right = graph.apply("Unsqueeze", factors.right, graph.integers(1))
            weight = graph.apply("MatMul", left, right)
            weight = graph.apply("Reshape", weight, graph.integers(count, rows, columns))
        if factors.diagonal is None:
            return weight
        diagonal = by_rows(graph, identity(graph, rows, columns), factors.diagonal)
        return graph.apply("Add", weight, diagonal)
