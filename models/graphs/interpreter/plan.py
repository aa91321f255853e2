"""The nodes of a graph in the order in which they are run, with what they need."""

from collections.abc import Collection, Iterator, Mapping

import onnx
import torch
from torch import Tensor, nn

from models.errors import InterpreterError
from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators import DOMAINS, OPERATORS, Operator, Result
from models.graphs.interpreter.tensor_values import tensor_of


class Plan(nn.Module):
    """A graph, or one within a node, whose constants are computed once.

    Floating-point constants are buffers, which move with the module. Whole numbers and truth values
    stay on the CPU, where shapes are computed.
    """

    def __init__(self, graph: onnx.GraphProto, opset: int, changing: Collection[str] = ()) -> None:
        """Read a graph; constants of names in `changing` are left to the caller.

        They are initializers, or what a node computes of constants.

        Raises:
            InterpreterError: an operator or an option of one is not computed, or what is to change
                is computed of inputs.
        """
        super().__init__()
        self.inputs: tuple[str, ...] = tuple(value.name for value in graph.input)
        self.outputs: tuple[str, ...] = tuple(value.name for value in graph.output)
        self._bodies = nn.ModuleList()
        self._whole: dict[str, Tensor] = {}
        self._buffer_of: dict[str, str] = {}
        constants = {
            one.name: tensor_of(one) for one in graph.initializer if one.name not in changing
        }
        self.steps: list[Step] = []
        with torch.no_grad():
            for proto in graph.node:
                step = self._step(proto, opset)
                if changing and set(step.outputs) & set(changing):
                    _check_constant(step, constants)
                else:
                    self._enter(step, constants)
        self._keep(constants)
        self._last = self._last_reads()

    def _step(self, proto: onnx.NodeProto, opset: int) -> "Step":
        node = Node(proto, opset)
        operator = operator_of(node, proto.domain)
        outer: set[str] = set()
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                # An initializer of a body may have the name of one that is trained outside it.
                body = Plan(attribute.g, opset)
                self._bodies.append(body)
                node.bodies[attribute.name] = body
                outer |= body.outer()
        return Step(node, operator, frozenset(outer))

    def _enter(self, step: "Step", constants: dict[str, Tensor]) -> None:
        """Keep a step for later, or compute it now if nothing it reads can change."""
        if step.reads <= constants.keys():
            constants.update(step.run(constants))
        else:
            self.steps.append(step)

    def _keep(self, constants: Mapping[str, Tensor]) -> None:
        wanted = set(self.outputs).union(*(step.reads for step in self.steps))
        moving = set(self.outputs).union(*(step.reads_on_device for step in self.steps))
        for name in (one for one in constants if one in wanted):
            value = constants[name]
            if value.is_floating_point() and name in moving:
                buffer = f"constant_{len(self._buffer_of)}"
                self.register_buffer(buffer, value, persistent=False)
                self._buffer_of[name] = buffer
            else:
                self._whole[name] = value

    def _last_reads(self) -> list[list[str]]:
        """For each step the values that nothing reads after it."""
        last: dict[str, int] = {}
        for place, step in enumerate(self.steps):
            last |= dict.fromkeys((*step.reads, *step.outputs), place)
        dropped: list[list[str]] = [[] for _ in self.steps]
        for name, place in last.items():
            if name not in self.outputs:
                dropped[place].append(name)
        return dropped

    def outer(self) -> set[str]:
        """Names that it reads and does not have itself."""
        own = {*self.inputs, *self._whole, *self._buffer_of}
        own |= {name for step in self.steps for name in step.outputs}
        read = set(self.outputs).union(*(step.reads for step in self.steps))
        return read - own

    def constants(self) -> dict[str, Tensor]:
        """What never changes, by name."""
        held = {name: self.get_buffer(buffer) for name, buffer in self._buffer_of.items()}
        return self._whole | held

    def walk(self, scope: Mapping[str, Tensor]) -> Iterator[tuple[Node, dict[str, Tensor]]]:
        """Each node that is run, with the outputs it gives by name.

        What is put in their place before the next node is asked for is what later nodes read.
        """
        return self._walk({**scope, **self.constants()})

    def run(self, scope: Mapping[str, Tensor]) -> list[Tensor]:
        """Its outputs, of inputs and of what a node around it sees.

        Raises:
            InterpreterError: something that it reads is missing, or torch refuses a node's inputs.
        """
        values = {**scope, **self.constants()}
        for _ in self._walk(values):
            pass
        return [values[name] for name in self.outputs]

    def _walk(self, values: dict[str, Tensor]) -> Iterator[tuple[Node, dict[str, Tensor]]]:
        """Run all nodes on values by name, of which those that are read no more are dropped."""
        for step, dropped in zip(self.steps, self._last, strict=True):
            found = step.run(values)
            yield step.node, found
            values |= found
            for name in dropped:
                values.pop(name, None)


class Step:
    """A node with what computes it."""

    def __init__(self, node: Node, operator: Operator, outer: frozenset[str]) -> None:
        self.node = node
        self.reads = frozenset(name for name in node.inputs if name) | outer
        named = enumerate(node.inputs)
        elsewhere = {name for place, name in named if place not in operator.on_cpu}
        self.reads_on_device = self.reads & (elsewhere | outer)
        """Without those of floating point that are read number by number."""
        self.outputs = tuple(name for name in node.outputs if name)
        self._operator = operator

    def run(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Its outputs by name.

        Raises:
            InterpreterError: something that it reads is missing, or torch refuses its inputs.
        """
        node = self.node
        missing = sorted(self.reads - values.keys())
        if missing:
            raise node.refuse(f"there is no value {missing[0]!r}")
        inputs = [values[name] if name else None for name in node.inputs]
        given = [values, *inputs] if self._operator.scoped else inputs
        try:
            found = self._operator.compute(node, *given)
        except InterpreterError:
            raise
        # What torch says of shapes and types that do not fit has no common root but these.
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError) as error:
            raise node.refuse(f"torch does not compute it: {error}") from error
        return self._named(found)

    def _named(self, found: Result) -> dict[str, Tensor]:
        results = (found,) if isinstance(found, Tensor) else found
        pairs = zip(self.node.outputs, results, strict=False)
        return {name: value for name, value in pairs if name}


def _check_constant(step: Step, constants: Mapping[str, Tensor]) -> None:
    if len(step.outputs) > 1 or not step.reads <= constants.keys():
        raise step.node.refuse(
            f"{', '.join(step.outputs)} is not one constant, and no other number can stand for it"
        )


def operator_of(node: Node, domain: str) -> Operator:
    """What computes a node.

    Raises:
        InterpreterError: nothing does; names the operator.
    """
    missing = missing_of(node, domain)
    operator = OPERATORS.find(node.operator, node.opset)
    if missing is not None or operator is None:
        raise InterpreterError(f"not computed with torch: {missing} (node {node.name})")
    return operator


def missing_of(node: Node, domain: str) -> str | None:
    """The operator of a node, with the option because of which it is not computed; or None."""
    if domain not in DOMAINS:
        return f"{domain}.{node.operator}"
    operator = OPERATORS.find(node.operator, node.opset)
    if operator is None:
        others = node.operator in OPERATORS.names()
        return f"{node.operator} of opset {node.opset}" if others else node.operator
    fault = operator.fault(node) if operator.fault else None
    return None if fault is None else f"{node.operator} {fault}"


def missing_operators(model: onnx.ModelProto) -> list[str]:
    """Operators of a model that are not computed, sorted; with an option if only that is missing.

    Nodes within `If`, `Loop` and `Scan` count, too. An empty list says that a `GraphModule` can be
    made of it.
    """
    opset = opset_of(model)
    return sorted(set(_missing_in(model.graph, opset)))


def _missing_in(graph: onnx.GraphProto, opset: int) -> Iterator[str]:
    for proto in graph.node:
        missing = missing_of(Node(proto, opset), proto.domain)
        if missing is not None:
            yield missing
        for attribute in proto.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield from _missing_in(attribute.g, opset)


def opset_of(model: onnx.ModelProto) -> int:
    """The version of the standard's operators that a model asks for, 1 where it names none."""
    return next((one.version for one in model.opset_import if one.domain in DOMAINS), 1)
