"""What the kernels are meant to reach, and whether they do."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.cpu.contestant import LOOP, OURS, TORCH
from tests.benchmarks.cpu.parametrization import OURS as FACTORS
from tests.benchmarks.cpu.parametrization import PRODUCT


@dataclass(frozen=True)
class Figures:
    """Everything that was measured."""

    cases: Sequence[dict[str, Any]]
    parametrizations: Sequence[dict[str, Any]]
    throughput: dict[str, float]

    def ratio(self, case: str, mode: str, over: str = TORCH) -> float:
        """Our time over a contestant's, of the medians of ratios; KeyError where one is missing."""
        for result in self.cases:
            if (result["case"], result["mode"]) == (case, mode) and "rows" in result:
                rows = {row["name"]: row["ratio"] for row in result["rows"]}
                return rows[OURS] / rows[over]
        raise KeyError(case)

    def making(self, n: int, m: int, field: str) -> float:
        """A field of the time that making factors takes."""
        for result in self.parametrizations:
            if (result.get("n"), result.get("m")) == (n, m):
                rows = {row["name"]: row for row in result["rows"]}
                return rows[FACTORS][field] / (rows[PRODUCT][field] if field == "ratio" else 1)
        raise KeyError(n)


Value = Callable[[Figures], float]


@dataclass(frozen=True)
class Target:
    """A bound on one figure."""

    name: str
    what: str
    value: Value
    bound: float
    at_most: bool
    unit: str = "x"

    def line(self, figures: Figures) -> str:
        """Whether it is reached, and the value."""
        sign = "<=" if self.at_most else ">="
        wanted = f"{self.name} {self.what} {sign} {self.bound:g}{self.unit}"
        try:
            value = self.value(figures)
        except KeyError:
            return f"- {wanted}: not measured"
        reached = value <= self.bound if self.at_most else value >= self.bound
        verdict = "reached" if reached else "**not reached**"
        return f"- {wanted}: {verdict} ({value:.3g}{self.unit})"


def _share(name: str, case: str, mode: str, bound: float) -> Target:
    """Our time is at most a share of torch's."""
    return Target(name, f"{case}, {mode}", lambda f: f.ratio(case, mode), bound, at_most=True)


def _speed(name: str, case: str, mode: str, bound: float, over: str = TORCH) -> Target:
    """We are at least so many times as fast."""
    what = f"{case}, {mode}, faster" + ("" if over == TORCH else f" than the {over}")
    return Target(name, what, lambda f: 1 / f.ratio(case, mode, over), bound, at_most=False)


TARGETS = (
    _share("C1", "spectral RNN n128 m16+16 B128", "train", 0.30),
    _share("C2", "spectral RNN n512 m16+16 B20", "train", 0.18),
    _share("C2", "spectral RNN n256 m16+16 B32", "train", 0.18),
    _share("C3", "spectral RNN n128 m128+128 B128", "train", 0.50),
    _share("C3", "rotations RNN n128 k10 B128", "train", 0.50),
    _share("C3", "rotations RNN n128 k127 B128", "train", 0.50),
    _speed("C4", "low-rank GRU n256 d24 B20", "infer", 6),
    _speed("C4", "low-rank GRU n512 d4 B20", "infer", 20),
    _speed("C4", "low-rank GRU n256 d32 B20", "infer", 5),
    _speed("C4", "low-rank GRU n512 d64 B20", "infer", 5),
    _speed("C5", "low-rank GRU n128 d24 B128", "train", 3.5),
    _speed("C5", "low-rank GRU n128 d24 B20", "train", 4),
    _speed("C5", "low-rank GRU n512 d4 B20", "train", 8),
    _speed("C6", "low-rank GRU n128 d24 B1", "infer", 10),
    _speed("C6", "low-rank GRU n128 d24 B1", "train", 20),
    Target(
        "C7",
        "factors n128 m16+16",
        lambda f: f.making(128, 16, "median_ms"),
        0.5,
        at_most=True,
        unit=" ms",
    ),
    Target(
        "C7",
        "factors n128 m16+16, faster than householder_product",
        lambda f: 1 / f.making(128, 16, "ratio"),
        30,
        at_most=False,
    ),
    Target(
        "C7",
        "factors n512 m16+16, faster than householder_product",
        lambda f: 1 / f.making(512, 16, "ratio"),
        500,
        at_most=False,
    ),
    _share("C8", "spectral MLP 40x128 m16+16 B128", "train", 1.0),
    _share("C8", "spectral MLP 40x128 m16+16 B128", "infer", 1.0),
    _speed("C9", "spectral RNN n128 m16+16 B128", "train", 80, LOOP),
    _speed("C9", "spectral MLP 40x128 m16+16 B128", "train", 25, LOOP),
    Target(
        "C10",
        "two processes over one, steps per second",
        lambda f: f.throughput["ours: two processes over one"],
        1.9,
        at_most=False,
    ),
)
