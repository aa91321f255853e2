"""Strangers' ONNX files: what is refused of them, their fixed inputs, their constants, their facts.

Everything here is a function of bytes and protobuf messages. A file may ask for any amount of time
and memory all the same: it is read in a process of its own, which has limits.
"""

from models.graphs.documents import GraphFacts, GraphLimits, GraphPort
from models.graphs.reading.constants import names_of_halves
from models.graphs.reading.facts import graph_facts, refuse_buried_weights
from models.graphs.reading.fixing import with_fixed
from models.graphs.reading.folding import Folded, folded
from models.graphs.reading.naming import with_nodes_apart
from models.graphs.reading.operators import OPERATORS
from models.graphs.reading.parsing import read_graph
from models.graphs.reading.runtime import newest_ir_version, newest_opset

__all__ = [
    "OPERATORS",
    "Folded",
    "GraphFacts",
    "GraphLimits",
    "GraphPort",
    "folded",
    "graph_facts",
    "names_of_halves",
    "newest_ir_version",
    "newest_opset",
    "read_graph",
    "refuse_buried_weights",
    "with_fixed",
    "with_nodes_apart",
]
