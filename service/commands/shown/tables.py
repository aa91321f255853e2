"""Answers as tables for people."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Any

from pydantic import ByteSize
from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from search.documents.catalog import Catalog, RuleEntry
from search.documents.fronts import Importance, ObjectiveInfo
from search.documents.objectives import OBJECTIVE_KINDS, Objective
from search.documents.progress import StudyProgress
from search.documents.readable import NONE
from search.documents.region import Region
from search.documents.spaces import ChoiceDimension, DryRun, SpaceMemory, WarmStartSource
from service.api.devices.schemas import DeviceDocument
from service.api.fronts.schemas import FrontDocument, PointDocument
from service.api.studies.schemas import StudyDocument

_TAKEN = ("onnx", "checkpoint")
"""Kinds of files, the one that most people take first."""
_OWN_RUNTIME = "reflectory"
_FULL = 32
"""Bits of a number that is not rounded."""
_MODEL = 12
"""Letters in a line of a model's name where the whole name does not fit."""
_NARROW: Mapping[str, str] = {
    "parameters": "para-\nmeters",
    "throughput\nsamples/s": "samples\nper s",
}
"""Headings in narrow columns."""
_ANY_WIDTH = 1000
"""Columns of a terminal that cuts no table."""


class TerminalTable(Table):
    """A table whose caption is folded at the terminal's width, not at the table's own.

    A table that is too wide for the terminal would otherwise have the ends of its sentences cut.
    """

    narrower: Table | None = None
    """What is shown instead where the terminal is too narrow for this table."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table, or its narrower form, and the caption below."""
        width = self.__rich_measure__(console, options.update_width(_ANY_WIDTH)).maximum
        bare = copy(self.narrower if self.narrower and width > options.max_width else self)
        bare.caption = None
        yield from Table.__rich_console__(bare, console, options)
        if isinstance(self.caption, str):
            yield Text.from_markup(self.caption, style="table.caption")

    def narrowed(self) -> "TerminalTable":
        """A copy with the same cells, fewer blanks between them and shorter lines in headings."""
        found = copy(self)
        found.padding = 0
        found.columns = [copy(column) for column in self.columns]
        for column in found.columns:
            column.header = _NARROW.get(str(column.header), column.header)
        return found


def front_table(front: FrontDocument, *, hyperparameters: bool = False) -> Table:
    """The points of a front, best first, with their throughput / dense baseline and file sizes."""
    table = _front_table(front, name=str, hyperparameters=hyperparameters)
    if not hyperparameters:
        folded = _front_table(front, name=_in_lines, hyperparameters=False)
        table.narrower = folded.narrowed()
    table.caption = "\n".join(_about(front)) or None
    return table


def _front_table(
    front: FrontDocument, *, name: Callable[[str], str], hyperparameters: bool
) -> TerminalTable:
    """The table without its caption; `name` writes the name of a model."""
    count = len(front.points)
    table = empty_table(f"Pareto front: {count} {'point' if count == 1 else 'points'}")
    add_columns(table, "trial", numbers=True)
    add_columns(table, "model")
    with_bits = any(point.bits not in (None, _FULL) for point in front.points)
    if with_bits:
        add_columns(table, "bits", numbers=True)
    with_test = any(point.test_quality is not None for point in front.points)
    for objective in front.objectives:
        add_columns(table, heading(objective), numbers=True)
        if objective.name == "quality" and with_test:
            add_columns(table, "on\ntest", numbers=True)
    add_columns(table, "vs\ndense", numbers=True)
    with_bytes = any(_file_bytes(point) is not None for point in front.points)
    if with_bytes:
        add_columns(table, "file\nKB", numbers=True)
    with_latency = any(point.latency_p99 is not None for point in front.points)
    if with_latency:
        add_columns(table, "latency\np99", numbers=True)
    if hyperparameters:
        table.add_column("hyperparameters", overflow="fold", style="dim")
    recommended: Any = front.recommendation
    for point in front.ranked():
        of_users = front.original is not None and front.original.trial == point.trial
        model = f"{point.architecture} {point.parametrization}"
        model = name(f"{model}, original" if of_users else model)
        is_recommended = recommended is not None and point.trial == recommended.trial
        number = f"> {point.trial}" if is_recommended else str(point.trial)
        cells = [number, f"{model}\noutside" if point.outside else model]
        if with_bits:
            cells.append(NONE if point.bits is None else str(point.bits))
        for axis in front.objectives:
            cells.append(shown(point.values.get(axis.name), axis.name))
            if axis.name == "quality" and with_test:
                cells.append(shown(point.test_quality, "quality"))
        ratio = "–" if point.throughput_ratio is None else f"{point.throughput_ratio:.2f}"
        cells.append(f"{ratio}\nslower" if point.slower else ratio)
        if with_bytes:
            size = _file_bytes(point)
            cells.append(NONE if size is None else f"{size / 1000:,.1f}")
        if with_latency:
            cells.append(shown(point.latency_p99, "latency"))
        if hyperparameters:
            cells.append(_hyperparameters(point))
        table.add_row(*cells)
    return table


def _in_lines(name: str) -> str:
    """A model's name in short lines: words that are too long for one are broken at underscores."""
    lines = [""]
    for word in name.split():
        if len(f"{lines[-1]} {word}".strip()) <= _MODEL:
            lines[-1] = f"{lines[-1]} {word}".strip()
            continue
        lines.append("")
        for part in re.findall(r"[^_]+_*", word):
            if len(lines[-1] + part) > _MODEL:
                lines.append("")
            lines[-1] += part
    return "\n".join(filter(None, lines))


def _about(front: FrontDocument) -> Iterator[str]:
    """What ran the models, where that is not this project's own code, and in which form."""
    runtimes = sorted({point.runtime for point in front.points if point.runtime} - {_OWN_RUNTIME})
    if runtimes:
        yield f"measured in {', '.join(runtimes)}"
    slower = any(point.slower for point in front.points)
    if slower or front.original is not None:
        yield "measured with matrices as stored: plain where the model is dense, else structured"
    if slower:
        yield "slower: smaller than the dense baseline, and yet slower"
    if any(point.outside for point in front.points):
        yield "outside: beyond the study's region of interest"
    if any(_file_bytes(point) is not None for point in front.points):
        yield "file: the ONNX file, or the checkpoint where there is none"
    recommended = front.recommendation
    if recommended is not None:
        yield escape(f"> recommended: {recommended.words}")


def _file_bytes(point: PointDocument) -> int | None:
    """The size of the file that most people take; None where it is not known."""
    return next((point.bytes[kind] for kind in _TAKEN if kind in point.bytes), None)


def empty_table(title: str | None = None) -> TerminalTable:
    """An empty table that wastes no width: fronts fit into 80 columns."""
    return TerminalTable(
        title=title,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
    )


def add_columns(table: Table, *names: str, numbers: bool = False) -> None:
    """Columns of words, which fold where the terminal is narrow, or of numbers, which do not."""
    for name in names:
        if numbers:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, overflow="fold")


def lines_table(title: str, lines: Mapping[str, str]) -> Table:
    """The facts of one thing, line by line."""
    table = empty_table(escape(title))
    table.add_column("what")
    table.add_column("value", overflow="fold")
    for what, value in lines.items():
        table.add_row(escape(what), escape(value))
    return table


def heading(objective: ObjectiveInfo) -> str:
    """Quality goes by its metric's name, the others by their own; rates need a unit."""
    has_unit = OBJECTIVE_KINDS[objective.name].has_unit
    return escape(f"{objective.metric}\n{objective.unit}" if has_unit else objective.metric)


def shown(value: float | None, objective: Objective) -> str:
    """A value in the digits that carry meaning for its objective."""
    return NONE if value is None else OBJECTIVE_KINDS[objective].shown(value)


def _hyperparameters(point: PointDocument) -> str:
    return " ".join(
        f"{name.partition('.')[2]}={f'{value:.3g}' if isinstance(value, float) else value}"
        for name, value in sorted(point.hyperparameters.items())
        if not name.endswith("parametrization")
    )


def importance_tables(importance: Importance) -> list[Table]:
    """One table per objective: its dimensions, or the reason why there are none."""
    tables: list[Table] = []
    for found in importance.objectives:
        axis = found.objective
        table = empty_table(escape(f"{axis.metric}, by {found.trials} trials"))
        tables.append(table)
        table.add_column("dimension", overflow="fold")
        if found.reason is not None:
            table.add_row(escape(f"none: {found.reason}"))
            continue
        add_columns(table, "importance", "trials", "trend", numbers=True)
        table.add_column("median by option", overflow="fold")
        for one in found.dimensions:
            trend = "–" if one.trend is None else f"{one.trend:+.2f}"
            medians = (one.medians or {}).items()
            shares = [f"{one.importance:.3f}", str(one.trials), trend]
            options = "  ".join(f"{option} {shown(value, axis.name)}" for option, value in medians)
            table.add_row(escape(one.dimension), *shares, escape(options))
    return tables


def study_table(study: StudyDocument) -> Table:
    """Where one study stands, line by line."""
    progress = study.progress
    counts = progress.trials.model_dump(exclude={"total", "refused"})
    trials = ", ".join(f"{count:,} {outcome}" for outcome, count in counts.items() if count)
    region = Region.of_document(study.spec).words()
    lines = {
        "state": study.state + (f" ({study.state_reason})" if study.state_reason else ""),
        "task": str(study.spec.get("task", {}).get("kind")),
        "priority": str(study.spec.get("priority", 0)),
        **({"region of interest": region} if region else {}),
        "trials": _of_the_budget(progress, trials),
        "epochs trained": f"{progress.epochs_trained:,}",
        "running for": f"{progress.wall_seconds:,.0f} s",
        "device hours": f"{progress.device_hours:.3f}",
    }
    if progress.epochs_left is not None:
        lines["epochs left"] = f"{progress.epochs_left:,}"
    if progress.hypervolume is not None:
        lines["hypervolume"] = f"{progress.hypervolume:.4g}"
    if progress.eta_seconds is not None and not study.ended:
        lines["time left"] = f"{progress.eta_seconds:,.0f} s"
    return lines_table(f"{study.name} ({study.id})", lines)


def _of_the_budget(progress: StudyProgress, trials: str) -> str:
    """How many there may be, and how many there are in each state."""
    total = f"{progress.trials.total:,}"
    most = (
        f"{total} in all"
        if progress.epochs_left is None
        else f"the epochs of {total} whole trainings"
    )
    return f"{most}: {trials}" if trials else most


def devices_table(devices: Iterable[DeviceDocument]) -> Table:
    """Slots, one per line, under their devices."""
    table = empty_table()
    add_columns(table, "machine", "device", "slot")
    add_columns(table, "share", "memory", numbers=True)
    table.add_column("does", overflow="fold")
    for device in devices:
        lock = device.lane.state + (f" study {device.lane.study}" if device.lane.study else "")
        place = [escape(device.machine), escape(device.model)]
        table.add_row(*place, "measurement lock", "", "", escape(lock))
        for slot in device.slots:
            does = "works for others" if slot.busy else "waits"
            if slot.attempt is not None:
                trial = "" if slot.attempt.trial is None else f" trial {slot.attempt.trial}"
                does = f"{slot.attempt.kind}: study {slot.attempt.study}{trial}"
            memory = "" if slot.memory is None else in_words(slot.memory)
            table.add_row("", "", escape(slot.name), f"{slot.share:g}", memory, escape(does))
    return table


def dry_run_table(answer: DryRun, *remarks: str) -> Table:
    """The dimensions of a space, with remarks below."""
    title = (
        f"{len(answer.candidates)} candidates, "
        f"{answer.parameter_range.low:,} to {answer.parameter_range.high:,} parameters"
    )
    table = empty_table(title)
    add_columns(table, "dimension", "kind", "values")
    for dimension in answer.dimensions:
        if isinstance(dimension, ChoiceDimension):
            values = ", ".join(map(str, dimension.options))
        else:
            scale = ", logarithmic" if dimension.log else ""
            if dimension.step is not None and (dimension.kind == "real" or dimension.step != 1):
                scale += f", step {dimension.step:g}"
            values = f"{dimension.low:g} to {dimension.high:g}{scale}"
        table.add_row(dimension.name, dimension.kind, escape(values))
    lines = [_about_source(source) for source in answer.warm_start]
    if answer.memory is not None:
        lines.append(_about_memory(answer.memory))
    lines += map(escape, remarks)
    if lines:
        table.caption = "\n".join(lines)
    return table


def _about_source(source: WarmStartSource) -> str:
    """How a study of the warm start is used, in a line."""
    what = "results" if source.by == "results" else "another task: ranks"
    return f"warm start from study {source.study}, {what} of {source.trials} trials"


def _about_memory(memory: SpaceMemory) -> str:
    """What the space takes, in a line."""
    low, high = memory.smallest_candidate, memory.largest_candidate
    line = f"memory of a trial: {in_words(low.bytes)} to {in_words(high.bytes)} predicted"
    line += f" ({high.architecture} with {high.parametrization})"
    if memory.slot_bytes is None:
        return line
    line += f"; the largest slot has {in_words(memory.slot_bytes)}"
    if high.bytes > memory.slot_bytes:
        line += ", and what needs more is not started"
    return line


def catalog_tables(catalog: Catalog) -> list[Table]:
    """What a study may name, what goes with what, and what its models can be had as."""
    tables: list[Table] = []
    groups = {
        "Architectures": catalog.architectures,
        "Parametrizations": catalog.parametrizations,
        "Tasks": catalog.tasks,
    }
    for title, entries in groups.items():
        table = empty_table(title)
        add_columns(table, "kind", "what", "paper")
        for entry in entries:
            table.add_row(entry.kind, entry.title, entry.paper or "")
        tables.append(table)
    table = Table(
        title="Combinations", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    table.add_column("architecture")
    table.add_column("parametrizations", overflow="fold")
    for architecture, parametrizations in catalog.combinations.items():
        table.add_row(architecture, ", ".join(parametrizations))
    presets = empty_table("Presets")
    add_columns(presets, "name", "what", "paper")
    for preset in catalog.presets:
        presets.add_row(preset.name, preset.title, preset.paper)
    rules = {
        "Samplers": catalog.samplers,
        "Stopping rules": catalog.stopping_rules,
        "Exports": catalog.exports,
    }
    return [*tables, table, presets, *(_rules_table(*group) for group in rules.items())]


def _rules_table(title: str, entries: Iterable[RuleEntry]) -> Table:
    table = empty_table(title)
    add_columns(table, "kind", "what")
    for entry in entries:
        table.add_row(entry.kind, escape(entry.summary))
    return table


def in_words(size: int) -> str:
    """A number of bytes as a person says it: `17.2 GB`."""
    return ByteSize(size).human_readable(decimal=True, separator=" ")


def in_time(seconds: float) -> str:
    """A time as a person says it: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
