"""Originals with which no file can be compared."""

from collections.abc import Mapping

import numpy as np

from search.errors import Fault, SpecRefused
from search.graphs.metrics.metric import Answers, Metric

MOST_OF_ONE_CLASS = 0.995
"""Above this share of one class, a file that answers nothing else would pass for a good one."""


def refuse_unusable(first: Mapping[str, Answers], second: Mapping[str, Answers]) -> None:
    """Hold two runs of the original on the same samples against each other, by outputs' names.

    Raises:
        SpecRefused: it answers with NaN or Inf, or the runs differ; the first sample is named.
    """
    for name, answers in first.items():
        for place, (one, other) in enumerate(zip(answers, second[name], strict=True)):
            if one.dtype.kind == "f" and not np.isfinite(one).all():
                raise _refused(
                    f"the model's output {name!r} is not finite on sample {place} (from 0)"
                )
            if not np.array_equal(one, other):
                raise _refused(
                    f"two runs of the model differ in the output {name!r} on sample {place} (from "
                    "0); it must give the same answer every time"
                )


def refuse_constant(metric: Metric, choosing: Mapping[str, Answers]) -> None:
    """Look whether the original's answers tell anything, in the part that is for choosing.

    Raises:
        SpecRefused: one class holds more than 99.5 % of an output's decisions, or, where nothing is
            decided, all its numbers are equal.
    """
    for name, answers in choosing.items():
        decided = metric.decided(answers)
        if decided is None:
            numbers = np.concatenate([answer.reshape(-1) for answer in answers])
            if (numbers == numbers[0]).all():
                raise _refused(f"the model's output {name!r} is {numbers[0]} for all samples")
            continue
        _, counts = np.unique(decided, return_counts=True)
        share = counts.max() / counts.sum()
        if share > MOST_OF_ONE_CLASS:
            raise _refused(
                f"{100 * share:.1f} % of the decisions of the output {name!r} are the same; "
                f"allowed are {100 * MOST_OF_ONE_CLASS:g} %. Give samples of other classes too"
            )


def _refused(message: str) -> SpecRefused:
    return SpecRefused([Fault("task.data", message)])
