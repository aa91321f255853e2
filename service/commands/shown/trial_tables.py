"""Trials as tables for people."""

from collections.abc import Iterable, Sequence

from rich.markup import escape
from rich.table import Table

from search.documents.export_kinds import ON_DEVICE
from search.documents.fronts import ObjectiveInfo
from search.documents.objectives import USUAL_OBJECTIVES, in_order
from service.api.trials.schemas import EpochDocument, TrialDetail, TrialDocument
from service.commands.shown.tables import add_columns, empty_table, heading, lines_table, shown
from storage.records import ThroughputKind


def trials_table(trials: Iterable[TrialDocument], objectives: Sequence[ObjectiveInfo]) -> Table:
    """Trials, one per line; `objectives` tell by which names their values go."""
    headings = {objective.name: heading(objective) for objective in objectives}
    ordered = in_order(headings)
    table = empty_table()
    add_columns(table, "trial", numbers=True)
    table.add_column("outcome", no_wrap=True)
    add_columns(table, "model")
    add_columns(table, *(headings[name] for name in ordered), numbers=True)
    add_columns(table, "reason")
    for trial in trials:
        model = f"{trial.architecture} {trial.parametrization}" + "\noutside" * trial.outside
        values = [shown(trial.values.get(name), name) for name in ordered]
        reason = escape(trial.reason or "")
        table.add_row(str(trial.number), trial.outcome, model, *values, reason)
    return table


def trial_table(trial: TrialDetail) -> Table:
    """What one trial was and became, line by line."""
    known = {name for name, value in trial.values.items() if value is not None}
    values = {
        name: shown(trial.values.get(name), name) for name in in_order({*known, *USUAL_OBJECTIVES})
    }
    if trial.latency_p99 is not None:
        values["latency p99"] = shown(trial.latency_p99, "latency")
    if trial.throughput_kind == ThroughputKind.PREDICTED:
        ends = (trial.predicted["throughput"].low, trial.predicted["throughput"].high)
        low, high = (shown(end, "throughput") for end in ends)
        values["throughput, predicted"] = f"{low} to {high} with 95 %"
    ratio = "–" if trial.throughput_ratio is None else f"{trial.throughput_ratio:.2f}"
    lines = {
        "model": f"{trial.architecture} {trial.parametrization}",
        "reason": trial.reason,
        "region of interest": "outside" if trial.outside else None,
        **values,
        "throughput / dense": ratio,
        "test quality": shown(trial.test_quality, "quality"),
        "epochs": f"{trial.epochs_trained}"
        + ("" if trial.best_epoch is None else f", the best {trial.best_epoch}"),
        **{name: str(value) for name, value in sorted(trial.hyperparameters.items())},
    }
    for kind, size in sorted(trial.bytes.items()):
        name = kind.replace("_", " ") if kind in ON_DEVICE else f"{kind} file"
        lines[name] = f"{size:,} bytes"
    for kind, reason in sorted(trial.missing.items()):
        lines[f"no {kind} file"] = reason
    for attempt in trial.attempts:
        text = f"{attempt.state} on {attempt.slot}"
        lines[f"attempt {attempt.number}"] = text + (f": {attempt.reason}" * bool(attempt.reason))
    title = f"Trial {trial.number}: {trial.outcome}"
    return lines_table(title, {what: value for what, value in lines.items() if value is not None})


def curve_table(curve: Iterable[EpochDocument]) -> Table:
    """A learning curve, one epoch per line."""
    table = empty_table("Learning curve")
    add_columns(
        table,
        "epoch",
        "train loss",
        "validation",
        "validation loss",
        "spectral margin",
        "seconds",
        numbers=True,
    )
    for epoch in curve:
        table.add_row(
            str(epoch.epoch),
            _known(epoch.train_loss, ".4f"),
            f"{epoch.validation:.4f}",
            _known(epoch.validation_loss, ".4f"),
            _known(epoch.spectral_margin, ".2e"),
            f"{epoch.seconds:.1f}",
        )
    return table


def _known(value: float | None, form: str) -> str:
    return "–" if value is None else f"{value:{form}}"
