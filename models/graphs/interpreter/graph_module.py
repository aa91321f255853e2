"""An ONNX graph as a module of torch, whose gradients reach the numbers that are to be trained."""

import itertools
from collections.abc import Collection, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import onnx
import torch
from torch import Tensor, nn

from models.errors import InterpreterError
from models.graphs.interpreter.node import Node
from models.graphs.interpreter.plan import Plan, missing_operators, opset_of
from models.graphs.interpreter.tensor_values import tensor_of

Feed: TypeAlias = Mapping[str, np.ndarray[Any, Any]]
"""Arrays by the names of a graph's inputs."""


class GraphModule(nn.Module):
    """Runs a checked, folded graph with torch operations.

    Initializers of floating point are buffers; those named in `trainable` are parameters. What is
    computed of constants alone is computed once. A name in `replaced` has the tensor that the
    module's `forward()` gives: rounded or structured weights. It is that of an initializer, or of
    a value that nodes compute of constants, as files have that store integers.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        trainable: Collection[str] = (),
        replaced: Mapping[str, nn.Module] | None = None,
    ) -> None:
        """Read a model.

        Raises:
            InterpreterError: an operator is not computed; a name is no initializer or constant of
                floating point, has numbers that are not finite, or is both trained and replaced; a
                replacement has another shape.
        """
        super().__init__()
        missing = missing_operators(model)
        if missing:
            raise InterpreterError(f"not computed with torch: {', '.join(missing)}")
        given = dict(replaced or {})
        weights = {one.name: one for one in model.graph.initializer}
        self._parameter_of: dict[str, str] = {}
        self._module_of: dict[str, str] = {}
        for name in dict.fromkeys(trainable):
            self._train(name, _floats(name, weights))
        computed = {name for node in model.graph.node for name in node.output}
        for name, module in given.items():
            self._replace(name, None if name in computed else _floats(name, weights), module)
        self.plan = Plan(model.graph, opset_of(model), {*self._parameter_of, *given})
        self.inputs: tuple[str, ...] = tuple(
            name for name in self.plan.inputs if name not in weights
        )
        """What has to be given; old files name their initializers among the inputs, too."""
        self.outputs: tuple[str, ...] = self.plan.outputs

    def _train(self, name: str, value: Tensor) -> None:
        self._parameter_of[name] = f"trained_{len(self._parameter_of)}"
        self.register_parameter(self._parameter_of[name], nn.Parameter(value))

    def _replace(self, name: str, value: Tensor | None, module: nn.Module) -> None:
        if name in self._parameter_of:
            raise InterpreterError(f"{name} is both trained and replaced; it can be one of them")
        with torch.no_grad():
            made = module()
        if value is not None and made.shape != value.shape:
            raise InterpreterError(
                f"what replaces {name} has shape {list(made.shape)}; it needs {list(value.shape)}"
            )
        self._module_of[name] = f"replaced_{len(self._module_of)}"
        self.add_module(self._module_of[name], module)

    def forward(self, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """All outputs by name, in the model's order, of inputs by name.

        Raises:
            InterpreterError: an input is missing, or torch refuses what a node is given.
        """
        return dict(zip(self.outputs, self.plan.run(self._scope(feeds)), strict=True))

    def walk(self, feeds: Mapping[str, Tensor]) -> Iterator[tuple[Node, dict[str, Tensor]]]:
        """Each node that is run with the outputs it gives, by name, in the order of the file.

        What is put in their place before the next node is asked for is what later nodes read.

        Raises:
            InterpreterError: see `forward`.
        """
        return self.plan.walk(self._scope(feeds))

    def _scope(self, feeds: Mapping[str, Tensor]) -> dict[str, Tensor]:
        missing = [name for name in self.inputs if name not in feeds]
        if missing:
            raise InterpreterError(f"input {missing[0]!r} is missing; inputs are {self.inputs}")
        trained = {name: self.get_parameter(path) for name, path in self._parameter_of.items()}
        made = {name: self.get_submodule(path)() for name, path in self._module_of.items()}
        return {**{name: feeds[name] for name in self.inputs}, **trained, **made}

    def trained(self) -> dict[str, np.ndarray[Any, Any]]:
        """The parameters as they are now, by the initializer's name."""
        return {
            name: self.get_parameter(path).detach().cpu().numpy().copy()
            for name, path in self._parameter_of.items()
        }

    def replacements(self) -> dict[str, nn.Module]:
        """The modules that stand for initializers, by name."""
        return {name: self.get_submodule(path) for name, path in self._module_of.items()}

    @property
    def device(self) -> torch.device:
        """Where its numbers are; the CPU if it has none."""
        held = next(itertools.chain(self.parameters(), self.buffers()), None)
        return torch.device("cpu") if held is None else held.device


def feed_tensors(feed: Feed, device: torch.device) -> dict[str, Tensor]:
    """Arrays as tensors, those of floating point on a device; whole numbers stay on the CPU.

    Those of half precision come in single, see `tensor_values.TYPES`.
    """
    tensors = {
        name: torch.as_tensor(np.array(value, np.float32 if value.dtype == np.float16 else None))
        for name, value in feed.items()
    }
    return {
        name: value.to(device) if value.is_floating_point() else value
        for name, value in tensors.items()
    }


def _floats(name: str, weights: Mapping[str, onnx.TensorProto]) -> Tensor:
    if name not in weights:
        raise InterpreterError(f"{name!r} is no initializer of the graph")
    value = tensor_of(weights[name])
    if not value.is_floating_point():
        raise InterpreterError(f"{name} has whole numbers; only floating point can be trained")
    if not bool(torch.isfinite(value).all()):
        raise InterpreterError(f"{name} has numbers that are not finite; a mask is not trained")
    return value
