"""Studies of random learning curves, for stopping rules to judge."""

import itertools
import math

import numpy as np

from search.stopping.curves import Curve, Standings, best_so_far

EPOCHS = 9


def random_study(
    seed: int, *, objectives: int = 3, finished: int = 8, others: int = 12, ties: bool = False
) -> Standings:
    """Curves that fall at rates of their own; some trials are as cheap and as good as others."""
    random = np.random.default_rng(seed)
    curves: dict[int, Curve] = {}
    spent = 0
    for number in range(finished + others):
        is_finished = number < finished
        length = EPOCHS if is_finished else int(random.integers(1, EPOCHS))
        falls = random.uniform(0, 0.3, size=length)
        errors = random.uniform(-0.6, 0) - np.cumsum(falls) + random.normal(0, 0.05, size=length)
        costs = random.uniform(0, 2, size=objectives - 1)
        if ties:
            errors, costs = errors.round(1), costs.round()
        spent += length
        curves[number] = Curve(
            number=number,
            errors=best_so_far(errors.tolist()),
            costs=tuple(costs.tolist()),
            is_finished=is_finished,
            ended_after=spent if is_finished else None,
        )
    return Standings(curves, reference=(0.0, *[2.5] * (objectives - 1)), epochs=EPOCHS, seed=seed)


def volume(points: list[tuple[float, ...]], reference: tuple[float, ...]) -> float:
    """Hypervolume by slices along the first axis, down to lengths."""
    inside = [p for p in points if all(a < r for a, r in zip(p, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) == 1:
        return reference[0] - min(p[0] for p in inside)
    edges = [*sorted({p[0] for p in inside}), reference[0]]
    return math.fsum(
        (high - low) * volume([p[1:] for p in inside if p[0] <= low], reference[1:])
        for low, high in itertools.pairwise(edges)
    )
