"""Which function computes which ONNX operator, by the opset of the file."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.tensor_values import aligned

Result: TypeAlias = Tensor | tuple[Tensor, ...]
"""Of a node with one output, or of one with several, in their order."""

Fault: TypeAlias = Callable[[Node], str | None]
"""What of an operator's options is not computed ("with P"), or None."""

F = TypeVar("F", bound=Callable[..., Result])

DOMAINS = ("", "ai.onnx")
"""Both spell the standard's own operators."""

NEWEST = 1_000
"""Until whatever opset may come."""


@dataclass(frozen=True)
class Operator:
    """A function that computes an operator in a range of opsets.

    `compute(node, *inputs)` gives the outputs; an input that is left out is None. With `scoped`
    it is `compute(node, scope, *inputs)`, where `scope` has the values that a body may read.
    """

    compute: Callable[..., Result]
    since: int
    until: int
    scoped: bool = False
    on_cpu: tuple[int, ...] = ()
    """Places of inputs of floating point that are read number by number, as scales of sizes are."""
    fault: Fault | None = None


class OperatorTable:
    """The operators of one file, or of several joined."""

    def __init__(self) -> None:
        self._entries: dict[str, list[Operator]] = {}

    @classmethod
    def joined(cls, *tables: "OperatorTable") -> "OperatorTable":
        """One table of all.

        Raises:
            ValueError: an operator is in two of them.
        """
        whole = cls()
        for table in tables:
            for name, entries in table._entries.items():
                if name in whole._entries:
                    raise ValueError(f"two files compute {name}; one has to")
                whole._entries[name] = list(entries)
        return whole

    def operator(
        self,
        name: str,
        *,
        since: int = 1,
        until: int = NEWEST,
        scoped: bool = False,
        on_cpu: tuple[int, ...] = (),
        fault: Fault | None = None,
    ) -> Callable[[F], F]:
        """Have the function below compute an operator from one opset to another, both included.

        Raises:
            ValueError: another function computes it at one of these opsets.
        """

        def entered(compute: F) -> F:
            self._add(name, Operator(compute, since, until, scoped, on_cpu, fault))
            return compute

        return entered

    def add(
        self, name: str, compute: Callable[..., Result], *, since: int = 1, until: int = NEWEST
    ) -> None:
        """As `operator`, for a function that is made by another."""
        self._add(name, Operator(compute, since, until))

    def _add(self, name: str, operator: Operator) -> None:
        entries = self._entries.setdefault(name, [])
        since, until = operator.since, operator.until
        if any(entry.since <= until and since <= entry.until for entry in entries):
            raise ValueError(f"two functions compute {name} in opsets {since} to {until}")
        entries.append(operator)

    def add_unary(self, name: str, function: Callable[[Tensor], Tensor]) -> None:
        """Enter a function of one tensor that has no options."""

        def compute(_node: Node, x: Tensor) -> Tensor:
            return function(x)

        self.add(name, compute)

    def add_pairwise(self, name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        """Enter a function of two tensors, number by number, that has no options."""

        def compute(_node: Node, a: Tensor, b: Tensor) -> Tensor:
            return function(*aligned(a, b))

        self.add(name, compute)

    def find(self, name: str, opset: int) -> Operator | None:
        """What computes an operator at an opset."""
        entries = self._entries.get(name, ())
        return next((one for one in entries if one.since <= opset <= one.until), None)

    def names(self) -> list[str]:
        """All operators, sorted."""
        return sorted(self._entries)
