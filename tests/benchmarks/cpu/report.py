"""Figures as Markdown."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.cpu.checks import GRADIENT_TOLERANCE, OUTPUT_TOLERANCE, SPECTRUM_TOLERANCE
from tests.benchmarks.cpu.contestant import OURS

Results = Sequence[dict[str, Any]]

_CLEARLY = 1.05
_HEAD = (
    "| case | contestant | backend | ms ± MAD (least) | ratio (quartiles) "
    "| error: outputs, gradients |"
)


def sequences(results: Results) -> str:
    """One block of rows per case and mode; the first one is the baseline."""
    lines = [_HEAD, "|---|---|---|---:|---:|---|"]
    for result in results:
        if "failed" in result:
            lines.append(f"| {result['case']}, {result['mode']} | failed: {result['failed']} |||||")
            continue
        for index, row in enumerate(result["rows"]):
            name = "" if index else _title(result)
            lines.append(
                f"| {name} | {row['name']} | {row['backend']} | {_time(row)} | "
                f"{_ratio(row, index)} | {_error(row)} |"
            )
        lines.append(f"| | *{_floor(result)}* | | | | |")
    return "\n".join(lines)


def parametrizations(results: Results) -> str:
    """Ways to make W."""
    lines = [
        "| W = U diag(s) V^T, forward and backward | way | ms ± MAD (least) | ratio (quartiles) |",
        "|---|---|---:|---:|",
    ]
    for result in results:
        if "failed" in result:
            lines.append(f"| {result['case']} | failed: {result['failed']} |||")
            continue
        title = f"n{result['n']} m{result['m']}+{result['m']} ({result['form']})"
        if result["noisy"]:
            title += " **noisy**"
        for index, row in enumerate(result["rows"]):
            wrong = " **wrong**" if row["name"] in result["wrong"] else ""
            lines.append(
                f"| {'' if index else title} | {row['name']}{wrong} | {_time(row)} | "
                f"{_ratio(row, index)} |"
            )
        lines.extend(f"| | {name}: not installed | | |" for name in result["missing"])
    return "\n".join(lines)


def facts(head: tuple[str, str], values: dict[str, str]) -> str:
    """A table of two columns."""
    lines = [f"| {head[0]} | {head[1]} |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in values.items())])


def slower_than_dense(results: Results) -> list[str]:
    """Cases in which the structured form loses to its own dense baseline."""
    found: list[str] = []
    for result in results:
        rows = {row["name"]: row for row in result.get("rows", ())}
        baseline = rows.get("ours, dense baseline")
        if baseline and rows[OURS]["ratio"] > _CLEARLY * baseline["ratio"]:
            share = rows[OURS]["ratio"] / baseline["ratio"]
            found.append(
                f"- {result['case']}, {result['mode']}: {share:.2f} of the baseline's time"
            )
    return found


def legend() -> str:
    """What the columns say."""
    return (
        "Processor time on one thread; contestants of a case run in one process, in random order "
        "within each round. `ratio` is the median of the rounds' ratios to `torch.nn` at equal "
        "sizes: below 1 is faster. `train` is forward and backward, with whatever makes the "
        "matrices of the parameters; `infer` is a forward pass with the factors cached. A baseline "
        "that scatters by more than 10 % makes its case **noisy**. Errors are the largest of a "
        "tensor over its largest entry, against double precision; a gradient that has vanished "
        f"over the steps is compared with 1e-6 of the largest one. {OUTPUT_TOLERANCE:g} is allowed "
        f"for outputs, {GRADIENT_TOLERANCE:g} for gradients (single precision loses about sqrt(T) "
        f"roundings, and sums T * B terms of both signs), {SPECTRUM_TOLERANCE:g} for singular "
        "values; where it is more the row says **wrong**. The floor is the flops of our form's "
        "matrix products at the measured peak, and one evaluation of each gate at the rate of the "
        "kernels' own tanh."
    )


def _title(result: dict[str, Any]) -> str:
    parts = [f"{result['case']}, {result['mode']} ({result['shape']})"]
    if result["note"]:
        parts.append(result["note"])
    if result["noisy"]:
        base = result["rows"][0]
        parts.append(f"**noisy** (MAD {base['deviation_ms'] / base['median_ms']:.0%})")
    return "; ".join(parts)


def _floor(result: dict[str, Any]) -> str:
    parts = [f"floor: {result['gflop']:.3g} GFLOP, {result['million_tanhs']:.3g} million tanh"]
    if result["floor_ms"] is not None:
        parts.append(
            f"with {result['peak']:.0f} GFLOP/s {result['floor_ms']:.3g} ms; "
            f"ours reaches {result['reached']:.0%}"
        )
    if (error := result["spectrum_error"]) is not None:
        verdict = "" if error <= SPECTRUM_TOLERANCE else " **wrong**"
        parts.append(f"singular values within {error:.1e}{verdict}")
    return "; ".join(parts)


def _time(row: dict[str, Any]) -> str:
    few = f", {row['rounds']} rounds" if row["rounds"] < 7 else ""
    return f"{row['median_ms']:.4g} ± {row['deviation_ms']:.2g} ({row['least_ms']:.4g}{few})"


def _ratio(row: dict[str, Any], index: int) -> str:
    if index == 0:
        return "1"
    return f"**{row['ratio']:.3g}** ({row['ratio_low']:.3g}–{row['ratio_high']:.3g})"


def _error(row: dict[str, Any]) -> str:
    if row["errors"] is None:
        return "own parameters"
    values = [row["errors"]["outputs"], row["errors"]["gradients"]]
    shown = ", ".join(f"{value:.1e}" for value in values if value is not None)
    return shown if row["tolerable"] else f"{shown} **wrong**"
