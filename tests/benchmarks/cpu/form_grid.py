"""Diagonal plus low rank against a whole matrix, on our kernels, and the rule that follows."""

import argparse
import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from models.forms import factored_form_pays
from models.kernels.calls import GATES, Kind, Packed, Tensors
from models.kernels.sequence import sequence
from models.kernels.structs import CellName
from tests.benchmarks.cpu.machine import described
from tests.benchmarks.cpu.timing import Timing, is_noisy, timed

Mode = Literal["train", "infer"]

SIZES = (16, 24, 32, 48, 64, 96, 128, 256, 512)
SHARES = (1 / 16, 1 / 8, 1 / 4, 5 / 16, 3 / 8, 7 / 16, 1 / 2)
_BATCHES = (1, 64)
_CELLS: tuple[CellName, ...] = ("rnn", "gru_reset_before")
_MODES: tuple[Mode, ...] = ("train", "infer")
_STEPS = 50
_DENSE = "dense"


@dataclass(frozen=True)
class Setting:
    """What a table is of."""

    cell: CellName
    mode: Mode
    batch: int


@dataclass(frozen=True)
class Point:
    """Times of the factored form over the dense one's, by share d / n, at one size."""

    setting: Setting
    size: int
    ratios: Mapping[float, float]
    noisy: bool


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    torch.set_num_threads(1)
    sizes = SIZES[2:6:3] if arguments.quick else SIZES
    rounds = 2 if arguments.quick else 7
    points = [
        _measured(Setting(cell, mode, batch), size, rounds=rounds)
        for cell, mode, batch in itertools.product(_CELLS, _MODES, _BATCHES)
        for size in sizes
    ]
    text = _report(points)
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.forms")
    parser.add_argument("--out", type=Path, help="file that the tables are written to as well")
    parser.add_argument("--quick", action="store_true", help="two sizes, two rounds")
    return parser.parse_args()


def _measured(setting: Setting, size: int, *, rounds: int) -> Point:
    ranks = {share: _rank(share, size) for share in SHARES}
    runs = {_DENSE: _run(setting, size, rank=None)}
    runs |= {str(share): _run(setting, size, rank=rank) for share, rank in ranks.items()}
    timings: Mapping[str, Timing] = timed(runs, baseline=_DENSE, rounds=rounds)
    ratios = {share: timings[str(share)].ratio for share in SHARES}
    return Point(setting, size, ratios, is_noisy(timings[_DENSE]))


def _rank(share: float, size: int) -> int:
    return max(1, round(share * size))


def _run(setting: Setting, size: int, *, rank: int | None) -> Callable[[], object]:
    """The kernels alone, over inputs of one feature, for the last state."""
    kind = Kind(setting.cell, "tanh", 0.0)
    tensors = _tensors(setting, size, rank)
    cotangent = torch.ones_like(tensors.h0)
    if setting.mode == "infer":
        with torch.no_grad():
            packed = Packed(kind, tensors)

        def infer() -> None:
            with torch.no_grad():
                sequence(kind, tensors, None, keep=False, packed=packed)

        return infer

    leaves = [t for t in tensors.in_order() if t is not None and t.requires_grad]

    def train() -> None:
        _, _, last, _ = sequence(kind, tensors, None, keep=True)
        torch.autograd.grad(last, leaves, cotangent)

    return train


def _tensors(setting: Setting, size: int, rank: int | None) -> Tensors:
    generator = torch.Generator().manual_seed(0)
    gates = GATES[setting.cell]

    def draw(*shape: int, scale: float) -> Tensor:
        values = scale * torch.randn(1, *shape, generator=generator)
        return values.requires_grad_(setting.mode == "train")

    scale = size**-0.5
    whole = rank is None
    return Tensors(
        x=torch.randn(1, _STEPS, setting.batch, 1, generator=generator),
        addends=None,
        w_in=draw(gates, size, 1, scale=0.5),
        bias=draw(1, gates, size, scale=0.1),
        weight=draw(gates, size, size, scale=0.7 * scale) if whole else None,
        left=None if whole else draw(gates, size, rank, scale=0.5 * rank**-0.5),
        right=None if whole else draw(gates, rank, size, scale=scale),
        diagonal=None if whole else draw(gates, size, scale=0.2),
        h0=draw(setting.batch, size, scale=0.1),
        c0=None,
    )


def _report(points: Sequence[Point]) -> str:
    parts = [
        "# Diagonal plus low rank against a whole matrix",
        "\n".join(f"- {fact}" for fact in [f"{datetime.now():%Y-%m-%d}", *described()]),
        f"Time of the factored form over that of the dense one, both on our kernels, T{_STEPS} I1, "
        "one thread, interleaved, medians of ratios within rounds; making the factors is not "
        "part of it. A * marks a dense time that scatters by more than 10 %.",
    ]
    settings = dict.fromkeys(point.setting for point in points)
    for setting in settings:
        own = [point for point in points if point.setting == setting]
        parts += [f"## {setting.cell}, {setting.mode}, B{setting.batch}", _table(own)]
    parts += ["## Rules, and what they lose against the faster form at every point", _rules(points)]
    return "\n\n".join(parts) + "\n"


def _table(points: Sequence[Point]) -> str:
    lines = [
        "| n | " + " | ".join(f"d/n = {share:.3g}" for share in SHARES) + " |",
        "|---|" + "---:|" * len(SHARES),
    ]
    for point in points:
        ratios = " | ".join(f"{point.ratios[share]:.2f}" for share in SHARES)
        lines.append(f"| {point.size}{'*' if point.noisy else ''} | {ratios} |")
    return "\n".join(lines)


def _rules(points: Sequence[Point]) -> str:
    """How much time each rule loses against choosing the faster form at every point."""
    losses = {rule: _losses(rule, points) for rule in (*_candidates(), NOW, NEVER)}
    ordered = sorted(losses, key=lambda rule: losses[rule])[:_BEST]
    lines = ["| factored where | mean loss | largest loss |", "|---|---:|---:|"]
    for rule in dict.fromkeys([*ordered, NOW, NEVER]):
        mean, worst = losses[rule]
        lines.append(f"| {rule.words} | {mean:.1%} | {worst:.0%} |")
    return "\n".join(lines)


@dataclass(frozen=True)
class Rule:
    """Whether to take the factored form, by rank d and size n."""

    words: str
    pays: Callable[[int, int], bool]


NOW = Rule("as it is now", factored_form_pays)
NEVER = Rule("nowhere", lambda _rank, _size: False)
_BEST = 8


def _from_size(share: float, smallest: int) -> Rule:
    return Rule(
        f"d <= {share:g} n and n >= {smallest}",
        lambda rank, size: rank <= share * size and size >= smallest,
    )


def _beyond_offset(share: float, offset: int) -> Rule:
    return Rule(
        f"d <= {share:g} (n - {offset})", lambda rank, size: rank <= share * (size - offset)
    )


def _candidates() -> list[Rule]:
    """Two numbers each: a share and the smallest size, or a share of what exceeds a size."""
    shares = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
    return [
        *(_from_size(share, size) for share in shares for size in SIZES[2:]),
        *(_beyond_offset(share, offset) for share in shares for offset in (8, 16, 24, 32, 40, 48)),
    ]


def _losses(rule: Rule, points: Sequence[Point]) -> tuple[float, float]:
    """The geometric mean and the largest of chosen time over best time, less 1."""
    logs = [
        math.log(ratio if rule.pays(_rank(share, point.size), point.size) else 1.0)
        - math.log(min(ratio, 1.0))
        for point in points
        for share, ratio in point.ratios.items()
    ]
    return math.exp(sum(logs) / len(logs)) - 1, math.exp(max(logs)) - 1


if __name__ == "__main__":
    main()
