"""`MODEL_CARD.md` of a network of others: what its file is, for somebody who has it alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from search.documents.readable import NONE, number, seconds
from search.exports.folder.markdown import document, estimate, one_line, table
from search.exports.network_folder.compressed_facts import CompressedFacts
from search.graphs.network_report import MetricReport, NetworkReport
from search.graphs.network_trial import BITS, STRUCTURE, WHOLE

STORED_AS: Mapping[str, str] = {
    WHOLE: "the original, as it was uploaded",
    BITS: "layers in fewer bits",
    STRUCTURE: "layers as products of low rank, or with a correction of low rank, and in fewer "
    "bits where that pays",
}
"""By a trial's form."""

_CONDITIONS = ("batch_size", "threads")


@dataclass(frozen=True, kw_only=True)
class CompressedCard:
    """A card: what rows say, and what is stored about the file."""

    facts: CompressedFacts
    report: NetworkReport | None
    missing: Mapping[str, str]
    """File of the folder -> why it is not in it."""

    def text(self) -> str:
        """Markdown; equal cards give equal texts."""
        sections = [
            (f"{one_line(self.facts.study)}, trial {self.facts.trial}", _about),
            ("How its answers compare", _answers),
            ("How large it is", _size),
            ("How fast it is", _speed),
            ("What was checked", _checked),
            ("How to run it", _running),
            ("Limits", _limits),
            ("What is missing, and why", _missing),
        ]
        return document(self, sections)


def _about(card: CompressedCard) -> Iterator[str]:
    facts, metric = card.facts, card.facts.task.compared_by
    trained = facts.spec.fine_tune is not None
    yield (
        f"The network {one_line(facts.network)} made smaller or faster by Reflectory, which stores "
        "its layers anew and compares the answers with those of the original. "
        + ("Its numbers were trained by those answers." if trained else "Nothing was trained.")
    )
    yield ""
    better = "larger" if metric.direction == "maximize" else "smaller"
    rows = [
        ("network", f"{one_line(facts.network)} (`{facts.task.model}`)"),
        ("data", f"{one_line(facts.data)} (`{facts.task.data}`)"),
        ("stored as", STORED_AS[facts.spec.form]),
        ("metric of the search", f"{metric.title}, {better} is better"),
        ("labels", "none" if facts.task.labels is None else f"`{one_line(facts.task.labels)}`"),
    ]
    yield from table(("", ""), iter(rows), words=2)


def _answers(card: CompressedCard) -> Iterator[str]:
    if card.report is None:
        yield "Not known: its report is not there."
        return
    parts = (("choosing", card.report.choosing), ("test", card.report.test))

    def rows() -> Iterator[Sequence[str]]:
        for name, part in parts:
            for one in part.metrics:
                shown = one.metric.shown
                yield (
                    name,
                    one.metric.title,
                    f"{part.samples:,}",
                    shown(one.value),
                    interval_of(one),
                    shown(one.original),
                )

    titles = ("part of the data", "metric", "samples", "this file", "95 % interval", "the original")
    yield from table(titles, rows(), words=2)
    yield ""
    yield (
        "Files were chosen by the choosing part. Nothing was chosen by the test part. Intervals "
        "are over samples."
    )
    if card.facts.task.labels is None:
        yield "There were no labels: how often the original itself is right is not known."


def interval_of(found: MetricReport) -> str:
    """From where to where a metric lies with 95 %; a dash where it is no share."""
    if found.low is None or found.high is None:
        return NONE
    return f"{found.metric.shown(found.low)} to {found.metric.shown(found.high)}"


def _size(card: CompressedCard) -> Iterator[str]:
    report = card.report
    if report is None:
        yield f"About {card.facts.spec.bytes:,} bytes."
        return
    changed = sum(not layer.choice.unchanged for layer in report.layers)
    yield (
        f"{report.bytes_after:,} bytes; the original has {report.bytes_before:,}, "
        f"{number(report.bytes_before / report.bytes_after, 3)} times as many. "
        f"{changed:,} of {len(report.layers):,} layers are stored anew: `report.html` has a table."
    )
    yield ""
    yield (
        "In memory it takes about what the original takes: numbers of few bits become whole ones "
        "when the file is loaded."
    )


def _speed(card: CompressedCard) -> Iterator[str]:
    if not card.facts.speeds:
        yield "Not measured."
        return
    titles = ("runtime", "device", "samples/s", "/ original", "one call, p50", "of the original")

    def rows() -> Iterator[Sequence[str]]:
        for record in card.facts.speeds:
            yield (
                f"{record.get('runtime', '')} {record.get('runtime_version') or ''}".strip(),
                one_line(str(record.get("device", NONE))),
                estimate(record.get("samples_per_second")),
                estimate(record.get("ratio")),
                seconds(record.get("latency_p50")),
                seconds(record.get("dense_latency_p50")),
            )

    yield from table(titles, rows(), words=2)
    yield ""
    first = card.facts.speeds[0]
    said = (f"{name.replace('_', ' ')} {first[name]}" for name in _CONDITIONS if first.get(name))
    yield (
        f'Conditions: {", ".join(said)}. Medians with 95 % intervals. "/ original" is the speed '
        "divided by that of the original, timed in turn in the same runtime. Speeds differ between "
        "machines: measure on yours."
    )


def _checked(card: CompressedCard) -> Iterator[str]:
    if card.report is not None:
        yield (
            f"The file was run in a fresh process on {card.report.choosing.samples:,} samples, and "
            "answered as it did in the search, before it was stored. It has the original's inputs "
            "and outputs" + (", but for the inputs that were fixed." if _fixed(card) else ".")
        )


def _fixed(card: CompressedCard) -> Sequence[str]:
    return sorted(card.facts.task.model_dump(include={"fixed"})["fixed"])


def _running(card: CompressedCard) -> Iterator[str]:
    yield "```sh\npip install numpy onnxruntime\npython example.py\n```\n"
    yield (
        "`example.py` runs `model.onnx` on zeros; with the name of an `.npz` file it runs it on "
        "the first samples there. `data.json` says which array each input takes."
    )
    if fixed := _fixed(card):
        yield ""
        yield f"Inputs that are constants in this file: {', '.join(map(one_line, fixed))}."


def _limits(card: CompressedCard) -> Iterator[str]:
    if card.report is None:
        yield "- valid for data like the data given"
        return
    yield from (f"- {one_line(warning)}" for warning in card.report.warnings)


def _missing(card: CompressedCard) -> Iterator[str]:
    yield from (f"- `{name}`: {reason}" for name, reason in card.missing.items())
