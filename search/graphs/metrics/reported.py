"""What is always reported of a file beside the metric that was searched."""

from search.graphs.metrics.agreement import Agreement
from search.graphs.metrics.kl import Kl
from search.graphs.metrics.label_accuracy import LabelAccuracy
from search.graphs.metrics.metric import Metric


def reported_beside(metric: Metric, *, has_labels: bool) -> tuple[Agreement | LabelAccuracy, ...]:
    """The agreement of decisions, where there are decisions, and accuracy, where there are labels.

    Numbers that are no probabilities decide something if labels say so.
    """
    logits = column = False
    if isinstance(metric, Kl | LabelAccuracy | Agreement):
        logits, column = metric.logits, metric.column
    elif not has_labels:
        return ()
    found: list[Agreement | LabelAccuracy] = [Agreement(logits=logits, column=column)]
    if has_labels:
        found.append(LabelAccuracy(logits=logits, column=column))
    return tuple(one for one in found if not isinstance(metric, type(one)))
