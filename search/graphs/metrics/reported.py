"""What is always told of a file beside the metric that was searched."""

from search.graphs.metrics.agreement import Agreement
from search.graphs.metrics.kl import Kl
from search.graphs.metrics.label_accuracy import LabelAccuracy
from search.graphs.metrics.metric import Metric


def reported_beside(metric: Metric, *, has_labels: bool) -> tuple[Agreement | LabelAccuracy, ...]:
    """The agreement of decisions, where there are decisions, and accuracy, where there are labels.

    Numbers that are no probabilities decide something if labels say so.
    """
    decides = {"logits": False, "column": False}
    if isinstance(metric, Kl | LabelAccuracy | Agreement):
        decides = {"logits": metric.logits, "column": metric.column}
    elif not has_labels:
        return ()
    found = [Agreement(**decides), *([LabelAccuracy(**decides)] if has_labels else [])]
    return tuple(one for one in found if one.kind != metric.kind)
