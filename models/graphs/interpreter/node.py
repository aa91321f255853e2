"""A node of an ONNX graph with its attributes read."""

from collections.abc import Mapping
from typing import Any, Protocol, cast

import onnx
from onnx import helper
from torch import Tensor

from models.errors import InterpreterError
from models.graphs.interpreter.tensor_values import tensor_of


class Body(Protocol):
    """A graph within a node, as of `If` and `Loop`."""

    inputs: tuple[str, ...]
    """The names by which it reads what it is given."""

    def run(self, scope: Mapping[str, Tensor]) -> list[Tensor]:
        """Its outputs in order, of its inputs and of what else it reads, by name."""
        ...


class Node:
    """Operator, names of inputs and outputs, and attributes by type.

    `bodies` are its subgraphs by attribute, which the builder of the graph puts there.
    """

    def __init__(self, proto: onnx.NodeProto, opset: int) -> None:
        self.operator: str = proto.op_type
        self.opset = opset
        self.inputs: tuple[str, ...] = tuple(proto.input)
        """An input that is left out has an empty name."""
        self.outputs: tuple[str, ...] = tuple(proto.output)
        self.name: str = proto.name or f"{proto.op_type} of {next(iter(proto.output), '')}"
        self.bodies: dict[str, Body] = {}
        self._attributes: dict[str, Any] = {
            one.name: helper.get_attribute_value(one)
            for one in proto.attribute
            if one.type not in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS)
        }

    def has(self, name: str) -> bool:
        """Whether an attribute is given."""
        return name in self._attributes

    def integer(self, name: str, default: int) -> int:
        """A whole number."""
        return int(self._attributes.get(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """A whole number that means yes or no."""
        return bool(self._attributes.get(name, default))

    def real(self, name: str, default: float) -> float:
        """A number."""
        return float(self._attributes.get(name, default))

    def integers(self, name: str) -> list[int] | None:
        """Whole numbers, or None where they are left out."""
        found = self._attributes.get(name)
        return None if found is None else [int(one) for one in found]

    def reals(self, name: str) -> list[float] | None:
        """Numbers, or None where they are left out."""
        found = self._attributes.get(name)
        return None if found is None else [float(one) for one in found]

    def text(self, name: str, default: str) -> str:
        """A word."""
        found = self._attributes.get(name, default)
        return found.decode() if isinstance(found, bytes) else str(found)

    def texts(self, name: str) -> list[str] | None:
        """Words, or None where they are left out."""
        found = self._attributes.get(name)
        return None if found is None else [cast(bytes, one).decode() for one in found]

    def tensor(self, name: str) -> Tensor | None:
        """Numbers of any shape, or None where they are left out."""
        found = self._attributes.get(name)
        return None if found is None else tensor_of(found)

    def has_input(self, place: int) -> bool:
        """Whether an input is given."""
        return place < len(self.inputs) and self.inputs[place] != ""

    def wants(self, place: int) -> bool:
        """Whether an output is read."""
        return place < len(self.outputs) and self.outputs[place] != ""

    def refuse(self, reason: str) -> InterpreterError:
        """The error that says what of this node is not computed."""
        return InterpreterError(f"{self.operator} ({self.name}): {reason}")
