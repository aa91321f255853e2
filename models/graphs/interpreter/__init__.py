"""Runs ONNX graphs with torch operations, so that their numbers can be trained further."""

from models.graphs.interpreter.answer_losses import AnswerKind, answers_loss
from models.graphs.interpreter.distillation import (
    DistillationOptions,
    Distilled,
    Judge,
    Judgement,
    Look,
    Original,
    distil,
)
from models.graphs.interpreter.equality import Equality, equal_to_runtime
from models.graphs.interpreter.graph_module import Feed, GraphModule, feed_tensors
from models.graphs.interpreter.plan import missing_operators
from models.graphs.interpreter.rounded_weight import (
    FullWeight,
    Numbers,
    RoundedNumbers,
    RoundedWeight,
    Weight,
    WeightBits,
)
from models.graphs.interpreter.trainable_names import trainable_names
from models.graphs.interpreter.weight_structures import (
    CorrectedWeight,
    LowRankWeight,
    ShapedWeight,
    weight_of,
)

__all__ = [
    "AnswerKind",
    "CorrectedWeight",
    "DistillationOptions",
    "Distilled",
    "Equality",
    "Feed",
    "FullWeight",
    "GraphModule",
    "Judge",
    "Judgement",
    "Look",
    "LowRankWeight",
    "Numbers",
    "Original",
    "RoundedNumbers",
    "RoundedWeight",
    "ShapedWeight",
    "Weight",
    "WeightBits",
    "answers_loss",
    "distil",
    "equal_to_runtime",
    "feed_tensors",
    "missing_operators",
    "trainable_names",
    "weight_of",
]
