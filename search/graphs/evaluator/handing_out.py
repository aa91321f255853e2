"""A file that is handed out: verified in a fresh process, and described."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import onnx

from models.errors import ExportError
from models.graphs.layers import Layer
from models.graphs.reading import names_of_halves
from models.graphs.sessions import AnyArray, GraphSession
from models.graphs.writing import FreshRun, fresh_run, predicted_bytes, verify
from search.graphs.evaluator.answered_parts import AnsweredPart, ByOutput
from search.graphs.evaluator.network_evaluator import Evaluator
from search.graphs.metrics import AnyMetric
from search.graphs.network_report import (
    LayerReport,
    MetricReport,
    NetworkReport,
    PartReport,
    TrainingReport,
)
from search.graphs.picks import UNCHANGED, LayerOffers, Pick, Picks, changed

LOSS_TOLERANCE = 1e-6
"""By how much the loss of a fresh process may differ from the trial's."""
_ONLY_LIKE_DATA = "valid for data like the data given"


@dataclass(frozen=True, eq=False)
class TrainedFile:
    """A file of some picks whose numbers were trained further."""

    content: bytes
    errors: Mapping[str, float]
    """The local errors of the layers whose numbers are others now, by name."""
    told: TrainingReport


@dataclass(frozen=True, eq=False)
class HandedOut:
    """A file and what is said of it."""

    content: bytes
    report: NetworkReport


def handed_out(
    evaluator: Evaluator,
    picks: Picks,
    offers: Sequence[LayerOffers],
    *,
    original: bytes,
    metrics: Sequence[AnyMetric] = (),
    trained: TrainedFile | None = None,
) -> HandedOut:
    """The file of these picks, after a fresh process has answered the choosing part with it.

    Without any pick it is the `original`, as it was uploaded. `offers` have the sensitivities;
    `metrics` are reported beside the one that was searched. `trained` takes the place of the file
    of the fits; what is predicted is that of the fits all the same.

    Raises:
        ExportError: the fresh process answers otherwise, or runs other nodes than the network did
            although no factors run.
        TrainingDiverged: answers are not finite.
    """
    content = evaluator.content(picks) if changed(picks) else original
    if trained is not None:
        content = trained.content
    run = _verified(evaluator, picks, content)
    layers = _layer_reports(evaluator, picks, offers, _halves(original))
    predicted = sum(one.sensitivity * one.local_error for one in layers)
    if trained is not None:
        layers = _with_errors(layers, trained.errors)
    choices = {name: pick.choice for name, pick in picks.items()}
    warning = evaluator.samples.split.warning
    report = NetworkReport(
        layers=layers,
        bytes_before=len(original),
        bytes_after=len(content),
        bytes_predicted=predicted_bytes(evaluator.model, evaluator.layers, choices),
        multiply_adds_before=evaluator.multiply_adds({}),
        multiply_adds_after=evaluator.multiply_adds(picks),
        predicted_loss=predicted,
        choosing=_part(
            evaluator,
            _by_output(evaluator, evaluator.choosing, run.answers),
            evaluator.choosing,
            metrics,
        ),
        test=_part(evaluator, evaluator.answers(content, evaluator.test), evaluator.test, metrics),
        node_types=dict(run.node_types),
        warnings=(_ONLY_LIKE_DATA, *([warning] if warning else [])),
        training=None if trained is None else trained.told,
    )
    return HandedOut(content, report)


def _verified(evaluator: Evaluator, picks: Picks, content: bytes) -> FreshRun:
    """Answer the choosing part in a fresh process, and compare answers, loss and nodes."""
    part, samples = evaluator.choosing, evaluator.samples
    feeds = samples.feeds(part.places)
    session = GraphSession(content)
    expected = [session.run(feed, evaluator.outputs) for feed in feeds]
    run = verify(content, feeds, expected, node_types=_expected_types(evaluator, picks))
    losses = [
        evaluator.loss(part, _by_output(evaluator, part, runs)) for runs in (expected, run.answers)
    ]
    if abs(losses[0] - losses[1]) > LOSS_TOLERANCE:
        raise ExportError(
            f"the loss is {losses[1]:.9g} in a fresh process and {losses[0]:.9g} here; they may "
            f"differ by {LOSS_TOLERANCE}"
        )
    return run


def _expected_types(evaluator: Evaluator, picks: Picks) -> Counter[str] | None:
    if not changed(picks) or any(pick.choice.runs_factors for pick in picks.values()):
        return None
    return fresh_run(evaluator.model.SerializeToString(), []).node_types


def _by_output(
    evaluator: Evaluator, part: AnsweredPart, runs: Sequence[Mapping[str, AnyArray]]
) -> ByOutput:
    return {
        name: evaluator.samples.by_sample(name, [run[name] for run in runs], len(part.places))
        for name in evaluator.outputs
    }


def _halves(original: bytes) -> Collection[str]:
    """Weights that the original stores in 16 bits and reads in 32.

    They became twice as large when its constants were computed, which no choice has gained.
    """
    return names_of_halves(onnx.load_model_from_string(original))


def _layer_reports(
    evaluator: Evaluator, picks: Picks, offers: Sequence[LayerOffers], halves: Collection[str]
) -> tuple[LayerReport, ...]:
    known = {one.name: one for one in offers}
    found: list[tuple[Layer, Pick, float, float]] = []
    for layer in evaluator.layers:
        pick = picks.get(layer.name, UNCHANGED)
        error = evaluator.fits.fit(layer.name, pick).error
        found.append((layer, pick, error, known[layer.name].sensitivity(pick)))
    whole = sum(error * sensitivity for _, _, error, sensitivity in found)
    return tuple(
        LayerReport(
            name=layer.name,
            operator=layer.operator,
            shape=layer.native,
            bytes_before=layer.stored_bytes // (2 if layer.weight in halves else 1),
            bytes_after=pick.choice.bytes(layer),
            choice=pick.choice,
            compensated=pick.compensated,
            local_error=error,
            sensitivity=sensitivity,
            predicted_share=min(1.0, error * sensitivity / whole) if whole else 0.0,
            multiply_adds_before=evaluator.layer_multiply_adds(layer.name, UNCHANGED),
            multiply_adds_after=evaluator.layer_multiply_adds(layer.name, pick),
        )
        for layer, pick, error, sensitivity in found
    )


def _with_errors(
    layers: Sequence[LayerReport], errors: Mapping[str, float]
) -> tuple[LayerReport, ...]:
    return tuple(
        one.model_copy(update={"local_error": errors.get(one.name, one.local_error)})
        for one in layers
    )


def _part(
    evaluator: Evaluator, found: ByOutput, part: AnsweredPart, metrics: Sequence[AnyMetric]
) -> PartReport:
    asked = (evaluator.metric, *(one for one in metrics if one != evaluator.metric))
    comparisons = [evaluator.compared(part, found, metric) for metric in asked]
    reported: list[MetricReport] = []
    for metric, comparison in zip(asked, comparisons, strict=True):
        original = evaluator.compared(part, part.original, metric)
        interval = comparison.interval
        reported.append(
            MetricReport(
                metric=metric,
                value=comparison.value,
                original=original.value,
                low=None if interval is None else interval.low,
                high=None if interval is None else interval.high,
            )
        )
    return PartReport(
        samples=len(part.places),
        metrics=tuple(reported),
        worst=tuple(int(part.places[place]) for place in comparisons[0].worst),
    )
