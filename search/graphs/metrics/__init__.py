"""How far a compressed file's answers are from the original's: one file a metric, and the union.

Pure numpy. Answers are arrays, one for each sample, as the files gave them.
"""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from search.graphs.metrics.agreement import Agreement
from search.graphs.metrics.answer_checks import refuse_constant, refuse_unusable
from search.graphs.metrics.comparison import Comparison, compared
from search.graphs.metrics.cosine import Cosine
from search.graphs.metrics.ctc_string import CtcString
from search.graphs.metrics.default_metric import are_probabilities, default_metric
from search.graphs.metrics.kl import Kl
from search.graphs.metrics.label_accuracy import LabelAccuracy
from search.graphs.metrics.metric import Answers, Metric
from search.graphs.metrics.relative_error import RelativeError
from search.graphs.metrics.reported import reported_beside
from search.graphs.metrics.sample_split import (
    DEFAULT_SHARES,
    Places,
    SampleSplit,
    part_sizes,
    split_samples,
)
from search.graphs.metrics.wilson import Interval, wilson

_Variants: TypeAlias = Kl | Agreement | RelativeError | Cosine | LabelAccuracy | CtcString

AnyMetric: TypeAlias = Annotated[_Variants, Field(discriminator="kind")]

METRICS: tuple[type[_Variants], ...] = get_args(_Variants)
"""The union's classes."""

__all__ = [
    "DEFAULT_SHARES",
    "METRICS",
    "Agreement",
    "Answers",
    "AnyMetric",
    "Comparison",
    "Cosine",
    "CtcString",
    "Interval",
    "Kl",
    "LabelAccuracy",
    "Metric",
    "Places",
    "RelativeError",
    "SampleSplit",
    "are_probabilities",
    "compared",
    "default_metric",
    "part_sizes",
    "refuse_constant",
    "refuse_unusable",
    "reported_beside",
    "split_samples",
    "wilson",
]
