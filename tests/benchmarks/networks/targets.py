"""What the issue wants, and whether it is so."""

import math
import statistics
from collections.abc import Iterator

from tests.benchmarks.networks.case import Case
from tests.benchmarks.networks.tables import Splits, eight, ratios

MOST_WARM_MINUTES = 3.0


def target_lines(case: Case, splits: Splits) -> Iterator[tuple[bool, str]]:
    """Whether each target is met, by medians over splits, and how far."""
    smaller, ours, dynamic, speed = eight(splits)

    def line(met: bool, what: str) -> tuple[bool, str]:
        return met, f"{case.title}: {what}"

    yield line(smaller >= 3.8, f"8 bits are {smaller:.2f} times smaller (wanted: 3.8)")
    if not math.isnan(dynamic):
        share = ours / dynamic
        yield line(
            share <= 0.2,
            f"the loss of 8 bits is {share:.2g} of that of quantize_dynamic (wanted: 0.2 at most)",
        )
    yield line(speed >= 0.97, f"8 bits run at {speed:.2f} of the original's speed (wanted: 0.97)")
    worst = statistics.median(one.worse for one in splits)
    yield line(
        worst <= 1,
        f"all choices lose at most {worst:.2f} times what bits lose at as many bytes, on the "
        "choosing part (wanted: 1)",
    )
    overall = statistics.median(one.spearman for one in splits)
    yield line(overall >= 0.9, f"Spearman overall {overall:.3f} (wanted: 0.9)")
    within = [one.within for one in splits if one.within is not None]
    if within:
        inside = statistics.median(within)
        yield line(inside >= 0.6, f"Spearman within a budget {inside:.2f} (wanted: 0.6)")
    minutes = statistics.median(
        sum(one.seconds[name] for name in ("moments", "fits and probes", "12 files")) / 60
        for one in splits
    )
    yield line(
        minutes < MOST_WARM_MINUTES,
        f"12 first files take {minutes:.1f} minutes of the processor (wanted: 3)",
    )
    if case.wanted is None:
        return
    wanted = case.wanted
    decided = [found.decided if (found := one.all[wanted.ratio]) else 0.0 for one in splits]
    yield line(
        statistics.median(decided) >= wanted.decided,
        f"{100 * statistics.median(decided):.1f} % decided at {wanted.ratio:g} times smaller "
        f"(wanted: {100 * wanted.decided:g} %)",
    )
    if wanted.rough_ratio is not None:
        both = ratios(splits, wanted.rough_ratio)
        missing = len(splits) - len(both)
        share = statistics.median(both) if both else 0.0
        note = f"; bits have no such file in {missing} splits" if missing else ""
        yield line(
            share <= 0.6,
            f"at {wanted.rough_ratio:g} times smaller all choices lose {share:.2f} of what bits "
            f"lose (wanted: 0.6 at most){note}",
        )
