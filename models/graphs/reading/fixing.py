"""Inputs that the user fixes become constants, and an `If` on constants its taken branch."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from models.errors import GraphRefused
from models.graphs.documents import DEFAULT_LIMITS, GraphLimits
from models.graphs.reading.fixed_values import fixed_tensor
from models.graphs.reading.inlining import Names, branch_of, inlined
from models.graphs.reading.input_sizes import InputSizes
from models.graphs.reading.runtime import plain_session
from models.graphs.reading.sentences import first_of, quoted
from models.graphs.reading.walking import bodies, reads

Fixed: TypeAlias = "Mapping[str, NDArray[Any] | float | Sequence[Any]]"


def with_fixed(model: ModelProto, fixed: Fixed, limits: GraphLimits = DEFAULT_LIMITS) -> ModelProto:
    """The model with values in place of some inputs, which disappear.

    A scalar stands for all elements of its input. An `If` at the top level whose condition depends
    on constants alone, or on sizes that the file gives its inputs as numbers, is replaced by the
    branch that is taken, also without a fixed input. Names that would be defined twice get new
    ones. Nodes and constants that nothing reads any more are left out.

    Raises:
        GraphRefused: there is no such input, a value does not fit its type or shape, or no input
            would be left.
    """
    made = ModelProto()
    made.CopyFrom(model)
    ports = {port.name: port for port in made.graph.input}
    unknown = [name for name in fixed if name not in ports]
    if unknown:
        raise GraphRefused(
            f"the model has no input {quoted(unknown[0])} to fix; it has {first_of(list(ports))}"
        )
    if fixed and len(fixed) == len(ports):
        raise GraphRefused("all inputs are fixed; at least one must be left")
    for name, value in fixed.items():
        made.graph.initializer.append(fixed_tensor(ports[name], value, limits.fixed_bytes))
    for place in reversed(range(len(made.graph.input))):
        if made.graph.input[place].name in fixed:
            del made.graph.input[place]
    _Branches(made).take()
    _prune(made.graph)
    return made


class _Branches:
    """One pass over the nodes at the top level."""

    def __init__(self, model: ModelProto) -> None:
        self._model, self._graph = model, model.graph
        self._names = Names(model.graph)
        self._sizes = InputSizes(model.graph)
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self._known = set(self._tensors)
        """Names whose values depend on constants alone."""
        self._makers: dict[str, NodeProto] = {}
        """Of these, what makes them."""

    def take(self) -> None:
        """Replace every `If` whose condition is known."""
        # A branch is put in front of what is left: what it holds is looked at in turn.
        waiting = deque(_copy(node) for node in self._graph.node)
        kept: list[NodeProto] = []
        while waiting:
            node = waiting.popleft()
            if node.op_type == "If" and set(node.input[:1]) & self._known:
                branch = branch_of(node, taken=self._is_true(node.input[0]))
                nodes, tensors = inlined(node, branch, self._names)
                self._tensors.update((tensor.name, tensor) for tensor in tensors)
                self._known.update(tensor.name for tensor in tensors)
                self._graph.initializer.extend(tensors)
                waiting.extendleft(reversed(nodes))
                continue
            node = self._sizes.constant(node, self._value) or node
            kept.append(node)
            if not any(bodies(node)) and all(name in self._known for name in node.input if name):
                self._known.update(node.output)
                self._makers.update(dict.fromkeys(node.output, node))
        del self._graph.node[:]
        self._graph.node.extend(kept)

    def _value(self, name: str) -> NDArray[Any] | None:
        """Of an initializer or a `Constant`."""
        if name in self._tensors:
            return numpy_helper.to_array(self._tensors[name])
        maker = self._makers.get(name)
        if maker is None or maker.op_type != "Constant":
            return None
        held = [numpy_helper.to_array(part.t) for part in maker.attribute if part.HasField("t")]
        return held[0] if held else None

    def _is_true(self, condition: str) -> bool:
        """Have the runtime compute it, from the constants and nodes that it depends on."""
        nodes: dict[int, NodeProto] = {}
        tensors: dict[str, TensorProto] = {}
        wanted = [condition]
        while wanted:
            name = wanted.pop()
            maker = self._makers.get(name)
            if maker is None:
                tensors[name] = self._tensors[name]
            elif id(maker) not in nodes:
                nodes[id(maker)] = maker
                wanted.extend(name for name in maker.input if name)
        # The order in which they were kept is one in which they can run.
        order = {id(maker): place for place, maker in enumerate(self._makers.values())}
        graph = helper.make_graph(
            [nodes[key] for key in sorted(nodes, key=order.__getitem__)],
            "condition",
            [],
            [helper.make_tensor_value_info(condition, TensorProto.BOOL, None)],
            initializer=list(tensors.values()),
        )
        model = helper.make_model(
            graph, opset_imports=self._model.opset_import, ir_version=self._model.ir_version
        )
        (value,) = plain_session(model.SerializeToString()).run({}).values()
        found = np.asarray(value)
        if found.size != 1:
            raise GraphRefused(
                f"the condition {quoted(condition)} of an If has the shape {list(found.shape)}; it "
                "must be one value"
            )
        return bool(found.item())


def _prune(graph: GraphProto) -> None:
    """Leave out what no output depends on."""
    wanted = {port.name for port in graph.output}
    kept: list[NodeProto] = []
    for node in reversed(graph.node):
        if any(name in wanted for name in node.output):
            kept.append(_copy(node))
            wanted.update(reads(node))
    del graph.node[:]
    graph.node.extend(reversed(kept))
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name not in wanted:
            del graph.initializer[place]


def _copy(node: NodeProto) -> NodeProto:
    copied = NodeProto()
    copied.CopyFrom(node)
    return copied
