"""Files of a compressed network as tables for people."""

from collections.abc import Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from search.documents.readable import NONE, shape
from service.api.fronts.schemas import FrontDocument, PointDocument
from service.client.networks import LayerOfFile, MetricOfFile, PartOfFile, ReportOfFile
from service.commands.shown.tables import add_columns, empty_table, heading, shown

NETWORK = "network"
"""What trials of a network of others have in the place of an architecture."""


def digits(value: float) -> str:
    """Three that count: a loss may be as small as 0.0001."""
    return f"{value:.3g}"


def is_of_a_network(front: FrontDocument) -> bool:
    """Whether the points of a front are files of a network of others."""
    return any(point.architecture == NETWORK for point in front.points)


def network_front_table(front: FrontDocument, reports: Mapping[int, ReportOfFile]) -> Table:
    """The points of a front from the least that is lost on.

    Agreement is that of the reports, of the choosing part; without reports that of the test part.
    """
    count = len(front.points)
    table = empty_table(f"Pareto front: {count} {'file' if count == 1 else 'files'}")
    add_columns(table, "trial", "bytes", "times\nsmaller", numbers=True)
    others = [axis for axis in front.objectives if axis.name not in ("quality", "bytes")]
    quality = next((axis for axis in front.objectives if axis.name == "quality"), None)
    add_columns(table, "quality" if quality is None else _metric(quality), numbers=True)
    agree = any(report.agreement is not None for report in reports.values())
    if agree:
        add_columns(table, "agreement, %\n(95 %)", numbers=True)
    tested = not agree and any(point.test_agreement is not None for point in front.points)
    if tested:
        add_columns(table, "agreement, %\n(test)", numbers=True)
    add_columns(table, *map(heading, others), "times\nfaster", numbers=True)
    table.add_column("form", overflow="fold")
    whole = _whole(front)
    for point in front.ranked():
        report = reports.get(point.trial)
        size = point.values["bytes"]
        times = NONE if not size or not whole else f"{whole / size:.2f}"
        lost = point.values["quality"]
        cells = [
            str(point.trial),
            NONE if size is None else f"{size:,}",
            times,
            NONE if lost is None else digits(lost),
        ]
        if agree:
            cells.append(share(None if report is None else report.agreement))
        if tested:
            kept = point.test_agreement
            cells.append(NONE if kept is None else f"{100 * kept:.1f}")
        cells += [shown(point.values.get(axis.name), axis.name) for axis in others]
        ratio = point.throughput_ratio
        cells.append(NONE if ratio is None else f"{ratio:.2f}")
        table.add_row(*cells, _form(point))
    table.caption = "on the part of the data that trials are chosen by" + (
        "; outside: beyond the study's region of interest"
        if any(point.outside for point in front.points)
        else ""
    )
    table.narrower = table.narrowed()
    return table


def network_report_tables(number: int, report: ReportOfFile) -> list[Table]:
    """A file's figures, and its layers, those of the largest predicted loss first."""
    times = report.bytes_before / max(1, report.bytes_after)
    table = empty_table(
        f"Trial {number}: {report.bytes_before:,} to {report.bytes_after:,} bytes, "
        f"{times:.2f} times smaller"
    )
    table.add_column("metric")
    add_columns(
        table,
        f"choosing part,\n{report.choosing.samples:,} samples",
        f"test part,\n{report.test.samples:,} samples",
        numbers=True,
    )
    for one in report.choosing.metrics:
        tested = report.test.metric(one.kind)
        table.add_row(escape(one.kind), _value(one), NONE if tested is None else _value(tested))
    table.add_row("worst samples", _worst(report.choosing), _worst(report.test))
    for warning in report.warnings:
        table.add_row("warning", escape(warning))
    return [table, _layers_table(report)]


def share(found: MetricOfFile | None) -> str:
    """A share in percent with its interval: `99.2 (97.1-99.8)`."""
    if found is None:
        return NONE
    text = f"{100 * found.value:.1f}"
    if found.low is None or found.high is None:
        return text
    return f"{text} ({100 * found.low:.1f}-{100 * found.high:.1f})"


def choice_in_words(choice: Mapping[str, Any]) -> str:
    """How a layer is stored: `low_rank, rank 12, 8 bits, blocks of 32`."""
    words = [str(choice.get("kind"))]
    words += [form.format(choice[name]) for name, form in _WORDS.items() if choice.get(name)]
    return ", ".join(words)


_WORDS: Mapping[str, str] = {
    "rank": "rank {}",
    "bits": "{} bits",
    "group": "blocks of {}",
    "run": "run one by one",
}


def _layers_table(report: ReportOfFile) -> Table:
    table = empty_table("Layers")
    table.add_column("layer", overflow="fold")
    add_columns(table, "operator", "shape")
    add_columns(table, "bytes", "to", "x ops", numbers=True)
    table.add_column("stored as", overflow="fold")
    add_columns(table, "error", "of the\nloss, %", numbers=True)
    for layer in sorted(report.layers, key=lambda one: -one.predicted_share):
        table.add_row(
            escape(layer.name),
            escape(layer.operator),
            shape(layer.shape),
            f"{layer.bytes_before:,}",
            f"{layer.bytes_after:,}",
            _operations(layer),
            escape(choice_in_words(layer.choice)) + ("" if layer.compensated else ", plain"),
            digits(layer.local_error),
            f"{100 * layer.predicted_share:.1f}",
        )
    table.caption = (
        "x ops: multiply-adds left; error: the share of the energy of a layer's outputs that is "
        "lost; of the loss: as predicted"
    )
    return table


def _operations(layer: LayerOfFile) -> str:
    if not layer.multiply_adds_before:
        return NONE
    return f"{layer.multiply_adds_after / layer.multiply_adds_before:.2f}"


def _metric(axis: Any) -> str:
    return escape(f"{axis.metric}\n{axis.unit}" if axis.unit else axis.metric)


def _value(found: MetricOfFile) -> str:
    return digits(found.value) if found.low is None else f"{share(found)} %"


def _worst(part: PartOfFile) -> str:
    return ", ".join(map(str, part.worst[:3])) or NONE


def _form(point: PointDocument) -> str:
    return f"{point.parametrization}\noutside" if point.outside else point.parametrization


def _whole(front: FrontDocument) -> int | None:
    """The bytes of the original."""
    return None if front.original is None else front.original.values["bytes"]
