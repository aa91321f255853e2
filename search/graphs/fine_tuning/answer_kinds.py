"""What the outputs of a network are, as far as a loss is concerned."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from models.graphs.interpreter import AnswerKind
from search.graphs.evaluator import ByOutput
from search.graphs.metrics import (
    Agreement,
    Answers,
    AnyMetric,
    Cosine,
    CtcString,
    Kl,
    LabelAccuracy,
    RelativeError,
    are_probabilities,
)

_Kind: TypeAlias = Callable[[Any, Answers], AnswerKind]
"""The kind of one output's answers, by a metric of a type."""


def answer_kinds(metric: AnyMetric, original: ByOutput) -> dict[str, AnswerKind]:
    """By output, what its loss is, as the metric reads the original's answers.

    Whole numbers and truth values are left out: they have no gradient.
    """
    kind = _KINDS[type(metric)]
    return {name: kind(metric, found) for name, found in original.items() if _are_floats(found)}


def _are_floats(answers: Answers) -> bool:
    return all(answer.dtype.kind == "f" for answer in answers)


def _of_divergence(metric: Kl, answers: Answers) -> AnswerKind:
    if _stands_alone(answers, column=metric.column):
        # Logits of single events are met as numbers.
        return "numbers" if metric.logits else "events"
    return "logits" if metric.logits else "probabilities"


def _of_decisions(metric: Agreement | LabelAccuracy, answers: Answers) -> AnswerKind:
    if _stands_alone(answers, column=metric.column):
        return "events" if not metric.logits and _are_shares(answers) else "numbers"
    return _of_rows(metric, answers)


def _of_rows(_metric: object, answers: Answers) -> AnswerKind:
    return "probabilities" if are_probabilities(answers) else "logits"


def _of_numbers(_metric: object, _answers: Answers) -> AnswerKind:
    return "numbers"


_KINDS: Mapping[type[AnyMetric], _Kind] = {
    Kl: _of_divergence,
    Agreement: _of_decisions,
    LabelAccuracy: _of_decisions,
    CtcString: _of_rows,
    RelativeError: _of_numbers,
    Cosine: _of_numbers,
}


def _stands_alone(answers: Answers, *, column: bool) -> bool:
    """Whether each number is an answer of its own."""
    return column or all(answer.ndim == 0 or answer.shape[-1] == 1 for answer in answers)


def _are_shares(answers: Sequence[Any]) -> bool:
    return all(bool(((answer >= 0) & (answer <= 1)).all()) for answer in answers)
