"""onnxruntime, on one thread and without an arena, for files of strangers."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnxruntime  # pyright: ignore[reportMissingTypeStubs]
from numpy.typing import NDArray
from onnx import IR_VERSION, ModelProto, TensorProto, defs, helper

from models.errors import GraphRefused

Array = NDArray[Any]

OLDEST_OPSET = 11

_LONGEST_MESSAGE = 300
_OUT_OF_MEMORY = ("bad_alloc", "Failed to allocate memory", "bad allocation")


class GraphSession:
    """A loaded model; constants are computed by the runtime alone where `folded_to` says."""

    def __init__(self, content: bytes, *, folded_to: Path | None = None) -> None:
        """Load a model, in which nothing is changed unless `folded_to` names a file.

        Raises:
            GraphRefused: onnxruntime does not load it.
            MemoryError: it needs more memory than there is.
        """
        # The library has no types.
        runtime: Any = onnxruntime
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        # An arena takes address space in advance, of which there is little.
        options.enable_cpu_mem_arena = False
        options.enable_mem_pattern = False
        levels = runtime.GraphOptimizationLevel
        options.graph_optimization_level = levels.ORT_DISABLE_ALL
        if folded_to is not None:
            options.graph_optimization_level = levels.ORT_ENABLE_BASIC
            options.optimized_model_filepath = str(folded_to)
        try:
            self._session: Any = runtime.InferenceSession(
                content, options, providers=["CPUExecutionProvider"]
            )
        # Its errors have no common root but this one.
        except Exception as error:
            raise _refusal("does not load the model", error) from error

    def run(self, feeds: Mapping[str, Array]) -> Sequence[Array]:
        """All outputs, in the file's order.

        Raises:
            GraphRefused: onnxruntime does not run the model on them.
            MemoryError: it needs more memory than there is.
        """
        try:
            return self._session.run(None, dict(feeds))
        except Exception as error:
            raise _refusal("does not run the model", error) from error


@cache
def newest_opset() -> int:
    """The newest opset of `ai.onnx` that the installed onnxruntime loads and onnx knows."""
    for version in range(defs.onnx_opset_version(), OLDEST_OPSET, -1):
        if _loads(opset=version, ir_version=8):
            return version
    return OLDEST_OPSET


@cache
def newest_ir_version() -> int:
    """The newest version of the file format that the installed onnxruntime loads and onnx knows."""
    versions = range(IR_VERSION, 0, -1)
    return next(version for version in versions if _loads(opset=OLDEST_OPSET, ir_version=version))


def _loads(*, opset: int, ir_version: int) -> bool:
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "", ports[:1], ports[1:]
    )
    imports = [helper.make_opsetid("", opset)]
    model: ModelProto = helper.make_model(graph, opset_imports=imports, ir_version=ir_version)
    try:
        GraphSession(model.SerializeToString())
    except GraphRefused:
        return False
    return True


def _refusal(what: str, error: Exception) -> GraphRefused | MemoryError:
    message = str(error)
    if isinstance(error, MemoryError) or any(words in message for words in _OUT_OF_MEMORY):
        return MemoryError(message)
    shown = " ".join(message.split())
    if len(shown) > _LONGEST_MESSAGE:
        shown = f"{shown[:_LONGEST_MESSAGE]}..."
    return GraphRefused(f"onnxruntime {what}: {shown}")
