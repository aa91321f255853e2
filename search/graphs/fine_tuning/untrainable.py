"""Why a network cannot be trained further."""

from collections.abc import Sequence

import onnx

from models.errors import GraphRefused, InterpreterError
from models.graphs.interpreter import Feed, GraphModule, equal_to_runtime, missing_operators
from search.graphs.evaluator import Evaluator
from search.graphs.fine_tuning.answer_kinds import answer_kinds

_NAMED = 5
"""Operators that are named, if more are missing."""


def untrainable(evaluator: Evaluator) -> str | None:
    """A sentence that names what is in the way; None: nothing is.

    Torch has to know all operators, and to compute what onnxruntime computes, to 1e-4 of each
    output's largest number, on the part of the data that is for choosing.
    """
    missing = missing_operators(evaluator.model)
    if missing:
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        return f"torch does not compute {', '.join(missing[:_NAMED])}{more}"
    if not answer_kinds(evaluator.metric, evaluator.choosing.original):
        return f"the outputs {', '.join(evaluator.outputs)} are whole numbers without a gradient"
    feeds = evaluator.samples.feeds(evaluator.choosing.places)
    try:
        return unequal(evaluator.model, GraphModule(evaluator.model), feeds)
    except (InterpreterError, GraphRefused) as error:
        return str(error)


def unequal(model: onnx.ModelProto, module: GraphModule, feeds: Sequence[Feed]) -> str | None:
    """By how much torch is off, and where; None where it computes the same.

    Raises:
        GraphRefused: onnxruntime does not run the model.
        InterpreterError: torch does not.
    """
    found = equal_to_runtime(model, module, feeds)
    return None if found.equal else f"torch computes something else: {found.sentence()}"
