"""The tables of the README and of the page, between their marks."""

from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks.showcase.networks import ORIGINAL
from tests.benchmarks.showcase.results import Results, accuracy

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
PAGE = ROOT / "deploy/docs/benchmarks/showcase.md"
BEGIN, END = "<!-- showcase: begin -->\n", "<!-- showcase: end -->\n"

_HEAD = (
    "network | parameters | ONNX file, kB | test accuracy, % | "
    "ours, batch 1 | batch 64 | ONNX, batch 1 | batch 64"
)


def write(results: Results) -> None:
    """Put the tables into both files."""
    for path, lines in ((README, readme_table(results)), (PAGE, page_tables(results))):
        text = path.read_text()
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        path.write_text(before + BEGIN + "\n".join(lines) + "\n" + END + after)


def readme_table(results: Results) -> Iterator[str]:
    """A row for each network: the member that was chosen."""
    yield f"| {_HEAD} |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for network in results.networks():
        yield _row(results, network, results.chosen(network), name=_name(network))
    yield ""
    yield _told(results)


def _told(results: Results) -> str:
    """What was trained, and what the intervals are of."""
    effort = results.effort
    seeds = len({run.seed for run in results.runs})
    over = (
        f"{seeds} seeds"
        if seeds >= 3
        else f"{results.runs[0].test_samples:,} test images, one seed"
    )
    return (
        f"Trained on {effort.samples:,} images for {effort.epochs} epochs, and compressed with "
        f"{effort.fine_tuning} epochs more. Accuracy with its 95 % interval over {over}."
    )


def page_tables(results: Results) -> Iterator[str]:
    """How it was measured, and a table for each network with all its members."""
    yield ""
    yield f"Measured on {results.day} with the task `{results.task}`, row by row. {_told(results)}"
    yield ""
    yield from (f"- {fact}" for fact in results.machine)
    for network in results.networks():
        yield ""
        yield f"### {_name(network)}"
        yield ""
        yield f"| {_HEAD.replace('network', 'compressed to', 1)} |"
        yield "|---|---:|---:|---:|---:|---:|---:|---:|"
        chosen = results.chosen(network)
        for form in results.forms(network):
            yield _row(
                results, network, form, name=f"**{form}** (chosen)" if form == chosen else form
            )


def _name(network: tuple[str, int]) -> str:
    cell, size = network
    return f"`nn.{cell.upper()}`, n = {size}"


def _row(results: Results, network: tuple[str, int], form: str, *, name: str) -> str:
    both = before, after = results.of(network, ORIGINAL), results.of(network, form)
    measured = results.speeds_of(network, form)
    speeds = [
        f"{measured.speed(runtime, batch).ratio:.2f}×"
        for runtime in ("ours", "onnxruntime")
        for batch in (1, 64)
    ]
    cells = (
        name,
        f"{before[0].parameters:,} → {after[0].parameters:,}",
        f"{measured.files.dense / 1000:,.0f} → {measured.files.compressed / 1000:,.0f}",
        " → ".join(f"{100 * mean:.1f} ± {100 * half:.1f}" for mean, half in map(accuracy, both)),
        *speeds,
    )
    return f"| {' | '.join(cells)} |"
