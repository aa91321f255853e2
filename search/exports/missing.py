"""Why a trial has no file of a kind."""

from collections.abc import Mapping

from models.model import ModelSpec
from models.spec import kind_of
from search.documents.export_kinds import CHECKPOINT, ONNX
from search.exports.export import MadeExport
from search.exports.outcomes import outcome, refusal
from search.exports.registry import EXPORTS, MADE
from search.graphs.network_trial import NetworkTrial
from search.training.trial_spec import trial_spec_of
from storage.records import TrialRecord, TrialState

NOT_MADE = "it was not made yet: it is made when it is first asked for"

_ONNX_ALONE = "a network that came as an ONNX file is had as one, and as nothing else"

_NO_CHECKPOINT = {
    TrialState.COMPLETE: "the study's retention did not keep the checkpoint that it is made of",
    TrialState.STOPPED: "the trial was stopped, and no checkpoint of it is kept",
}


def missing_files(trial: TrialRecord) -> dict[str, str]:
    """By role, why a file of the trial cannot be had, or is not there before it is asked for.

    A file that trials link to before it is made is missing only where none can be made.
    """
    spec = trial_spec_of(trial.spec)
    if isinstance(spec, NetworkTrial):
        return _missing_of_a_network(trial)
    absent = [export for export in MADE if kind_of(export) not in trial.artifacts]
    checkpoint = trial.artifacts.get(CHECKPOINT)
    if checkpoint is None:
        reason = _no_checkpoint(trial)
        return dict.fromkeys((CHECKPOINT, *map(kind_of, absent)), reason)
    if not absent:
        return {}
    reasons = {kind_of(export): _reason(export, trial, spec.model, checkpoint) for export in absent}
    return {role: reason for role, reason in reasons.items() if reason is not None}


def refusal_of_a_network(trial: TrialRecord, role: str) -> str:
    """Why a trial of a network of others has no file of a role, variants of ONNX files included."""
    return _missing_of_a_network(trial).get(role, _ONNX_ALONE)


def _missing_of_a_network(trial: TrialRecord) -> dict[str, str]:
    """Of a network of others there is the file that was evaluated, and nothing is made of it."""
    found = dict.fromkeys((CHECKPOINT, *map(kind_of, MADE)), _ONNX_ALONE)
    del found[ONNX]
    if ONNX in trial.artifacts:
        return found
    reason = f"the trial is {trial.state.value}, and has no file"
    if not trial.state.has_ended:
        reason = f"the trial is {trial.state.value}: it has no file yet"
    elif trial.state == TrialState.COMPLETE:
        reason = "the study's retention did not keep the file"
    return {**found, ONNX: reason}


def file_sizes(trial: TrialRecord, sizes: Mapping[str, int]) -> dict[str, int]:
    """By role, the bytes of a trial's files that are there, and what they take on a device.

    Args:
        trial: the trial.
        sizes: bytes by digest.
    """
    found: dict[str, int] = {}
    for role in map(kind_of, EXPORTS):
        digest, made = trial.artifacts.get(role), outcome(trial, role)
        if digest is None or digest not in sizes:
            continue
        found |= {role: sizes[digest], **({} if made is None else made.on_device)}
    return found


def _reason(
    export: type[MadeExport], trial: TrialRecord, model: ModelSpec, checkpoint: str
) -> str | None:
    fault = export.fault(model)
    if fault is not None:
        return fault
    if not trial.state.has_ended:
        return f"the trial is {trial.state.value}: files are made when it has ended"
    found = refusal(trial, kind_of(export), checkpoint)
    return found or (None if export.linked_before_made else NOT_MADE)


def _no_checkpoint(trial: TrialRecord) -> str:
    if not trial.state.has_ended:
        return f"the trial is {trial.state.value}: it has no checkpoint yet"
    other = f"the trial is {trial.state.value}, and has no checkpoint"
    return _NO_CHECKPOINT.get(trial.state, other)
