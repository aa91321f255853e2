"""What was found, as Markdown."""

import statistics
from collections.abc import Callable, Iterator, Sequence

from tests.benchmarks.networks.beside import OURS, Beside, Quality
from tests.benchmarks.networks.case import Case
from tests.benchmarks.networks.study import RATIOS, Found

Splits = Sequence[Found]
DYNAMIC = "quantize_dynamic"


def section(case: Case, splits: Splits) -> list[str]:
    """One network."""
    return [
        *beside_section(case, [one.beside for one in splits]),
        "| times smaller, at least | bits: bytes | loss | decided, % | all: bytes | loss | "
        "decided, % | all / bits |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(_front_row(ratio, splits) for ratio in RATIOS),
        "",
        *_search_lines(splits),
        "",
    ]


def beside_section(case: Case, splits: Sequence[Beside]) -> list[str]:
    """One network in the files of other tools, beside ours."""
    return [
        f"## {case.title}",
        "",
        f"{splits[0].original_bytes:,} bytes. {case.data}. Splits: {len(splits)}; medians, and "
        f"least to most in brackets. Loss: `{case.metric.kind}`; decided: `{case.decisions.kind}` "
        "with the original's answers. Both are of the test part.",
        "",
        "| file | bytes | times smaller | loss | decided, % | speed |",
        "|---|---:|---:|---:|---:|---:|",
        *(_tool_row(name, splits) for name in splits[0].tools),
        "",
    ]


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    """A median, and the extremes if they look otherwise."""
    middle, low, high = map(form, (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} ({low} to {high})"


def ratios(splits: Splits, ratio: float) -> list[float]:
    """Loss of all choices over that of bits on the test part, in the splits that have both."""
    pairs = [(one.all[ratio], one.bits[ratio]) for one in splits]
    return [every.loss / bits.loss for every, bits in pairs if every and bits and bits.loss]


def qualities(splits: Sequence[Beside], name: str) -> list[Quality]:
    """Of one tool, in the splits in which its file runs."""
    return [found for one in splits if isinstance(found := one.tools[name], Quality)]


def speed(splits: Sequence[Beside], name: str) -> str:
    """Of one tool over the original: the median of splits, and the quartiles within rounds."""
    found = [one.speeds[name] for one in splits if name in one.speeds]
    if not found:
        return "–"
    middle = statistics.median(1 / one.ratio for one in found)
    low, high = min(1 / one.ratio_high for one in found), max(1 / one.ratio_low for one in found)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _tool_row(name: str, splits: Sequence[Beside]) -> str:
    found = qualities(splits, name)
    if not found:
        return f"| {name} | {splits[0].tools[name]} | | | | |"
    smaller = [splits[0].original_bytes / one.bytes for one in found]
    return (
        f"| {name} | {statistics.median(one.bytes for one in found):,.0f} | "
        f"{statistics.median(smaller):.2f} | {_losses(found)} | {_decided(found)} | "
        f"{speed(splits, name)} |"
    )


def _front_row(ratio: float, splits: Splits) -> str:
    cells: list[str] = []
    for chosen in ([one.bits[ratio] for one in splits], [one.all[ratio] for one in splits]):
        found = [one for one in chosen if one is not None]
        if not found:
            cells += ["none", "", ""]
            continue
        sizes = statistics.median(one.bytes for one in found)
        missing = "" if len(found) == len(chosen) else f" ({len(found)} of {len(chosen)})"
        cells += [f"{sizes:,.0f}{missing}", _losses(found), _decided(found)]
    both = ratios(splits, ratio)
    cells.append(spread(both, "{:.2f}".format) if both else "")
    return f"| {ratio:g} | {' | '.join(cells)} |"


def _search_lines(splits: Splits) -> Iterator[str]:
    within = [one.within for one in splits if one.within is not None]
    seconds = {
        name: spread([one.seconds[name] for one in splits], "{:.0f}".format)
        for name in splits[0].seconds
    }
    overall = spread([one.spearman for one in splits], "{:.3f}".format)
    inside = spread(within, "{:.2f}".format) if within else "too few trials"
    worst = spread([one.worse for one in splits], "{:.2f}".format)
    early = f"{sum(one.incomplete for one in splits)} of {sum(one.trials for one in splits)}"
    total = sum(sum(one.seconds.values()) for one in splits) / 60 / len(splits)
    yield f"- Spearman of predicted and measured loss: {overall}; within budgets of 10 %: {inside}."
    yield (
        f"- {splits[0].trials} trials of each search; {early} "
        "of all choices ended after an eighth. On the choosing part, the loss of all choices is "
        f"at most {worst} times that of bits at as many bytes."
    )
    yield f"- Seconds of the processor: {', '.join(f'{k} {v}' for k, v in seconds.items())}."
    yield f"- Minutes of a search and of bits alone: {total:.1f}."
    yield f"- In a fresh process, first split: {splits[0].verified}."


def _losses(found: Sequence[Quality]) -> str:
    return spread([one.loss for one in found], "{:.2g}".format)


def _decided(found: Sequence[Quality]) -> str:
    return spread([100 * one.decided for one in found], "{:.1f}".format)


def eight(splits: Splits) -> tuple[float, float, float, float]:
    """Ours at 8 bits: times smaller, loss, that of `quantize_dynamic`, and speed."""
    beside = [one.beside for one in splits]
    ours, theirs = qualities(beside, OURS), qualities(beside, DYNAMIC)
    return (
        statistics.median(beside[0].original_bytes / one.bytes for one in ours),
        statistics.median(one.loss for one in ours),
        statistics.median(one.loss for one in theirs) if theirs else float("nan"),
        statistics.median(1 / one.speeds[OURS].ratio for one in beside),
    )
