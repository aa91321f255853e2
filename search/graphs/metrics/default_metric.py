"""The metric of a task that names none."""

from collections.abc import Mapping

import numpy as np

from search.graphs.metrics.kl import Kl
from search.graphs.metrics.metric import Answers, rows
from search.graphs.metrics.relative_error import RelativeError

_ROUNDING = 1e-3
"""Of a row's sum; half precision has it."""


def default_metric(original: Mapping[str, Answers]) -> Kl | RelativeError:
    """`kl` where all outputs of the original are probabilities, else `relative_error`.

    Rows on the last axis are probabilities where they are not negative and sum to 1; numbers that
    are alone in their row where they are in 0..1.
    """
    probable = all(are_probabilities(answers) for answers in original.values())
    return Kl() if probable else RelativeError()


def are_probabilities(answers: Answers) -> bool:
    """Whether one output's answers can be probabilities, see `default_metric`."""
    for answer in map(rows, answers):
        if not np.isfinite(answer).all() or answer.min(initial=0) < 0:
            return False
        if answer.shape[-1] == 1:
            if answer.max(initial=0) > 1:
                return False
        elif (np.abs(answer.sum(-1) - 1) > _ROUNDING).any():
            return False
    return True
