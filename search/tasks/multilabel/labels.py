"""Any of several labels for each sample: loss and metrics of one logit per label."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from search.tasks.task import NOT_NEGATIVE, SHARE, Range

RANKS: tuple[int, ...] = (1, 3, 5)
"""How many of the most likely labels precision is taken of."""


def binary_cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Binary cross-entropy of logits and targets 0 or 1, both `[B, L]`: the mean over all."""
    return F.binary_cross_entropy_with_logits(output, target)


class LabelMeter:
    """Cross-entropy, precision among the most likely labels, and micro-averaged F1.

    `bce`: nats per label. `p_at_k`: the share of a sample's k largest logits whose labels it has,
    for k up to the number of labels. `micro_f1`: of the labels whose probability is at least 1/2,
    2 TP / (2 TP + FP + FN) over all samples and labels; 0 where there are neither.
    """

    def __init__(self) -> None:
        self._samples = 0
        self._labels = 0
        self._entropy = torch.zeros((), dtype=torch.float64)
        self._found = dict.fromkeys(RANKS, 0.0)
        self._both = 0.0
        self._either = 0.0

    def add(self, output: Tensor, target: Tensor) -> None:
        """Add a batch's sums."""
        self._samples, self._labels = self._samples + len(target), target.shape[1]
        entropies = F.binary_cross_entropy_with_logits(output, target, reduction="none")
        self._entropy = self._entropy + entropies.double().sum().cpu()
        chosen = output.topk(min(max(RANKS), self._labels), dim=1).indices
        ranked = target.gather(1, chosen)
        for rank in self._ranks():
            self._found[rank] += float(ranked[:, :rank].double().sum())
        positive = (output >= 0).double()
        self._both += float((positive * target).sum())
        self._either += float(positive.sum() + target.double().sum())

    @property
    def ranges(self) -> Mapping[str, Range]:
        """An entropy and shares."""
        return {
            "bce": NOT_NEGATIVE,
            "micro_f1": SHARE,
            **{f"p_at_{rank}": SHARE for rank in RANKS},
        }

    def values(self) -> Mapping[str, float]:
        """`bce`, `micro_f1` and `p_at_1`, `p_at_3`, `p_at_5`."""
        precisions = {f"p_at_{rank}": self._found[rank] / rank for rank in self._ranks()}
        return {
            "bce": float(self._entropy) / (self._samples * self._labels),
            "micro_f1": 2 * self._both / self._either if self._either else 0.0,
            **{name: found / self._samples for name, found in precisions.items()},
        }

    def _ranks(self) -> list[int]:
        return [rank for rank in RANKS if rank <= self._labels]
