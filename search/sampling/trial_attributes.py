"""User attributes of a trial in Optuna: what its parameters and its values do not tell."""

from collections.abc import Mapping
from typing import Any

from search.studies import StudySpec
from storage.records import TrialRecord, TrialState
from storage.repositories.trial_summaries import ShownTrial


def configuration_notes(
    spec: StudySpec, number: int, params: Mapping[str, Any], hyperparameters: Mapping[str, Any]
) -> dict[str, Any]:
    """What tells of a trial's configuration.

    They are the values that the model really has, where its layers hold less than was drawn, and of
    what the document names itself, a preset or the model that the study compresses, its name with
    all that is not among the parameters.
    """
    effective = {
        f"effective:{name}": value
        for name, value in hyperparameters.items()
        if params.get(name, value) != value
    }
    if number >= spec.named_first:
        return effective
    unknown = {name: value for name, value in hyperparameters.items() if name not in params}
    if spec.compressed_model is not None:
        return {"original": spec.compressed_model, **unknown, **effective}
    return {"preset": spec.presets[number], **unknown, **effective}


def outcome_notes(trial: TrialRecord | ShownTrial) -> dict[str, Any]:
    """How a trial ended, as far as Optuna's own words do not tell."""
    found: dict[str, Any] = {}
    if trial.state.has_ended and trial.state != TrialState.COMPLETE:
        found |= {"outcome": trial.state.value, "reason": trial.reason}
    if trial.state.has_ended and trial.predicted:
        found["throughput_kind"] = "predicted"
    elif trial.state.has_ended:
        found["throughput_ratio"] = trial.throughput_ratio
    return {name: value for name, value in found.items() if value is not None}
