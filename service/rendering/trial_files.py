"""The files of a trial as its page lists them: where each is, its size, and what was compared."""

from collections.abc import Iterator
from dataclasses import dataclass

from models.spec import kind_of
from search.documents.export_kinds import ON_DEVICE
from search.documents.readable import enumerated
from search.exports import EXPORTS, NETWORK_EXPORTS, ExportOutcome, Verification, outcome
from search.graphs.network_trial import NetworkTrial
from search.training.trial_spec import trial_spec_of
from service.api.trials.schemas import TrialDetail
from storage.records import TrialRecord


@dataclass(frozen=True, kw_only=True)
class TrialFile:
    """One kind of file."""

    title: str
    link: str | None
    """To the file, or to the folder that it is in; null where there is none."""
    size: int | None
    note: str
    """How it was compared with its model, or why it is missing."""


def trial_files(trial: TrialRecord, detail: TrialDetail) -> Iterator[TrialFile]:
    """Every kind of file of a trial that has ended; before that, those that are there."""
    links = detail.links.model_dump()
    is_network = isinstance(trial_spec_of(trial.spec), NetworkTrial)
    for export in NETWORK_EXPORTS if is_network else EXPORTS:
        kind = kind_of(export)
        if not (detail.ended or kind in detail.bytes):
            continue
        made = outcome(trial, kind)
        yield TrialFile(
            title=f"{export.words[0].upper()}{export.words[1:]}: {', '.join(export.names())}",
            link=links.get(kind) or (links["folder"] if kind in detail.bytes else None),
            size=detail.bytes.get(kind),
            note=detail.missing.get(kind) or ". ".join(_notes(made)),
        )


def _notes(made: ExportOutcome | None) -> Iterator[str]:
    if made is None:
        return
    yield _compared(made.verification)
    for name, size in made.on_device.items():
        words = ON_DEVICE[name]
        yield f"{words[0].upper()}{words[1:]}: {size:,} bytes"


def _compared(found: Verification | None) -> str:
    if found is None:
        return ""
    text = f"{found.runtime} {found.runtime_version}"
    if found.answers:
        text += f": {found.same:,} of {found.answers:,} answers on validation data are the same"
        text += f", {found.ties:,} are decided by rounding" if found.ties else ""
    elif found.samples:
        text += f": the same numbers on {found.samples:,} validation samples"
    else:
        text += ": the same numbers on random inputs"
    if found.chunks:
        text += f", and in pieces of {enumerated(found.chunks)} steps"
    return text
