"""The weights of a graph as matrices, and how the operators that read them do so.

`find_layers` finds them; a `Role` is one way in which an operator reads a weight, and `ROLES` is
the registry of all. `NodeWriter` writes the nodes that stand in a weight's place.
"""

from models.graphs.layers.arrangement import Arrangement
from models.graphs.layers.find_layers import find_layers
from models.graphs.layers.layer import SMALLEST, Layer, Reader
from models.graphs.layers.node_writer import NodeWriter
from models.graphs.layers.role import (
    AnyArray,
    Element,
    Matrix,
    Operand,
    Reading,
    Role,
    Spatial,
    Use,
)
from models.graphs.layers.roles import ROLES

__all__ = [
    "ROLES",
    "SMALLEST",
    "AnyArray",
    "Arrangement",
    "Element",
    "Layer",
    "Matrix",
    "NodeWriter",
    "Operand",
    "Reader",
    "Reading",
    "Role",
    "Spatial",
    "Use",
    "find_layers",
]
