"""ONNX operators computed by torch, a file for each group; `OPERATORS` has them all."""

from models.graphs.interpreter.operators.attention import ATTENTION
from models.graphs.interpreter.operators.comparisons import COMPARISONS
from models.graphs.interpreter.operators.contractions import CONTRACTIONS
from models.graphs.interpreter.operators.control_flow import CONTROL_FLOW
from models.graphs.interpreter.operators.convolutions import CONVOLUTIONS
from models.graphs.interpreter.operators.elementwise import ELEMENTWISE
from models.graphs.interpreter.operators.indexing import INDEXING
from models.graphs.interpreter.operators.nonlinearities import NONLINEARITIES
from models.graphs.interpreter.operators.normalisation import NORMALISATION
from models.graphs.interpreter.operators.operator_table import (
    DOMAINS,
    Operator,
    OperatorTable,
    Result,
)
from models.graphs.interpreter.operators.pooling import POOLING
from models.graphs.interpreter.operators.recurrent_nodes import RECURRENT
from models.graphs.interpreter.operators.reductions import REDUCTIONS
from models.graphs.interpreter.operators.resizing import RESIZING
from models.graphs.interpreter.operators.stored_integers import STORED_INTEGERS
from models.graphs.interpreter.operators.tensor_shapes import TENSOR_SHAPES

__all__ = ["DOMAINS", "OPERATORS", "Operator", "OperatorTable", "Result"]

OPERATORS = OperatorTable.joined(
    ATTENTION,
    COMPARISONS,
    CONTRACTIONS,
    CONTROL_FLOW,
    CONVOLUTIONS,
    ELEMENTWISE,
    INDEXING,
    NONLINEARITIES,
    NORMALISATION,
    POOLING,
    RECURRENT,
    REDUCTIONS,
    RESIZING,
    STORED_INTEGERS,
    TENSOR_SHAPES,
)
