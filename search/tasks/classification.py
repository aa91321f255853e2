"""What tasks with one class per sample have in common, and those with ten classes of images."""

from collections.abc import Mapping
from typing import Any, Self

import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from models import interface
from models.spec import Spec
from search.tasks.array_cache import Arrays
from search.tasks.samples import IGNORED, Split, Splits
from search.tasks.soft_targets import soft_classes
from search.tasks.sources import DataSources
from search.tasks.task import SHARE, Metric, Range

ARRAY_NAMES = ("train_x", "train_y", "validation_x", "validation_y", "test_x", "test_y")
"""The arrays of three splits: x [N, pixels] float32, y [N] int64."""

TEN_CLASSES = interface.Classes(classes=tuple(map(str, range(10))))
"""The digits, by their own names."""

TEN_CLASS_ACCURACY = Metric(
    name="accuracy",
    direction="maximize",
    unit="fraction of images",
    # Guessing one of ten classes at random; the digits are nearly balanced.
    baseline=0.1,
)


def split_arrays(
    images: NDArray[Any], labels: NDArray[Any], rows: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Give x and y of each named set of rows, by `<name>_x` and `<name>_y`."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, chosen in rows.items():
        arrays[f"{name}_x"] = images[chosen].astype("float32", copy=False)
        arrays[f"{name}_y"] = labels[chosen].astype("int64", copy=False)
    return arrays


def as_sequences(arrays: Arrays, *, steps: int, train_samples: int | None) -> Splits[Split]:
    """View flat images [N, pixels] as sequences [N, steps, pixels / steps].

    The arrays' order is already random, so that the first `train_samples` are a fair draw.
    """

    def split(name: str, limit: int | None = None) -> Split:
        x = torch.as_tensor(arrays[f"{name}_x"][:limit])
        y = torch.as_tensor(arrays[f"{name}_y"][:limit])
        return Split(x.view(x.shape[0], steps, -1), y)

    return Splits(split("train", train_samples), split("validation"), split("test"))


def cross_entropy(output: Tensor, target: Tensor) -> Tensor:
    """Mean cross-entropy of logits [B, classes] and classes [B]."""
    return F.cross_entropy(output, target)


def cross_entropy_of_steps(output: Tensor, target: Tensor) -> Tensor:
    """The same of logits [B, T, classes] and classes [B, T], over the steps not ignored."""
    return F.cross_entropy(output.flatten(0, 1), target.flatten(), ignore_index=IGNORED)


def squared_hinge(output: Tensor, target: Tensor) -> Tensor:
    """Mean over samples and classes of `max(0, 1 - k y)^2`.

    k is 1 for the right class and -1 for the others. Outputs are `[..., classes]` and classes
    `[...]`; steps that are ignored are left out.
    """
    classes = torch.arange(output.shape[-1], device=output.device)
    is_right = target.unsqueeze(-1) == classes
    short = torch.where(is_right, 1 - output, 1 + output).clamp(min=0).square()
    counted = (target != IGNORED).to(output.dtype)
    return (short.mean(-1) * counted).sum() / counted.sum()


class AccuracyMeter:
    """Share of the samples whose largest logit [B, classes] is the target's [B]."""

    def __init__(self) -> None:
        self._hits = 0
        self._samples = 0

    def add(self, output: Tensor, target: Tensor) -> None:
        """Count a batch."""
        self._hits += int((output.argmax(dim=-1) == target).sum().item())
        self._samples += target.numel()

    @property
    def ranges(self) -> Mapping[str, Range]:
        """A share."""
        return {"accuracy": SHARE}

    def values(self) -> Mapping[str, float]:
        """Accuracy."""
        return {"accuracy": self._hits / self._samples}


class Classes(Spec):
    """A task whose samples have one class each."""

    loss = staticmethod(cross_entropy)
    soft_loss = staticmethod(soft_classes)

    @property
    def asks_for_classes(self) -> bool:
        """Whether targets are classes: they are."""
        return True

    def meter(self) -> AccuracyMeter:
        """Accuracy."""
        return AccuracyMeter()


class TenClasses(Classes):
    """One on images of ten classes, of which nothing but the pixels is in files."""

    @classmethod
    def example(cls) -> Self:
        """The task as it is when nothing is said."""
        return cls()

    @property
    def metric(self) -> Metric:
        """Accuracy."""
        return TEN_CLASS_ACCURACY

    def resolved(self, sources: DataSources) -> Self:  # noqa: ARG002 -- nothing follows from files
        """The same: all sizes are known."""
        return self
