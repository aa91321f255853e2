"""Runs ONNX graphs with torch operations, so that their numbers can be trained further."""

from models.graphs.interpreter.equality import Equality, equal_to_runtime
from models.graphs.interpreter.graph_module import Feed, GraphModule, feed_tensors
from models.graphs.interpreter.plan import missing_operators

__all__ = [
    "Equality",
    "Feed",
    "GraphModule",
    "equal_to_runtime",
    "feed_tensors",
    "missing_operators",
]
