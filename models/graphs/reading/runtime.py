"""Which files the installed onnxruntime loads."""

from functools import cache

from onnx import IR_VERSION, ModelProto, TensorProto, defs, helper

from models.errors import GraphRefused
from models.graphs.sessions import GraphSession

OLDEST_OPSET = 11


def plain_session(content: bytes) -> GraphSession:
    """A file as it is, in a process with little memory.

    Raises:
        GraphRefused: onnxruntime does not load it.
        MemoryError: it needs more memory than there is.
    """
    return GraphSession(content, level="ORT_DISABLE_ALL", arena=False)


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
        plain_session(model.SerializeToString())
    except GraphRefused:
        return False
    return True
