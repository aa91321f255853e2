"""What came of making a trial's files, which is kept in the trial's row."""

from collections.abc import Mapping
from importlib.metadata import version

from pydantic import Field

from models.spec import Spec
from search.exports.verification import Verification
from storage.records import Json, TrialRecord


class ExportOutcome(Spec):
    """One file of a trial: how it was made, or why it could not be."""

    checkpoint: str = Field(description="SHA-256 of the checkpoint that it was to be made of")
    program: str = Field(description="the version of this program that tried")
    reason: str | None = Field(default=None, description="why there is no file; null: it was made")
    verification: Verification | None = Field(
        default=None, description="how the file was compared with the checkpoint"
    )
    on_device: dict[str, int] = Field(
        default_factory=dict[str, int], description="bytes that it takes where it runs, by name"
    )

    @classmethod
    def of(
        cls,
        checkpoint: str,
        *,
        reason: str | None = None,
        verification: Verification | None = None,
        on_device: Mapping[str, int] | None = None,
    ) -> "ExportOutcome":
        """Of what this program made, or could not make, of a checkpoint."""
        return cls(
            checkpoint=checkpoint,
            program=version("reflectory"),
            reason=reason,
            verification=verification,
            on_device=dict(on_device or {}),
        )

    def document(self) -> dict[str, Json]:
        """As the trial's row holds it."""
        return self.model_dump(mode="json")


def outcome(trial: TrialRecord, role: str) -> ExportOutcome | None:
    """What is kept of a trial's file of a role; None where nobody tried to make it."""
    kept = trial.exports.get(role)
    return None if kept is None else ExportOutcome.model_validate(kept)


def refusal(trial: TrialRecord, role: str, checkpoint: str) -> str | None:
    """Why this program could not make a file of a checkpoint; None unless it has tried.

    Of another checkpoint, or by another version of the program, it may be possible.
    """
    kept = outcome(trial, role)
    if kept is None or kept.reason is None:
        return None
    is_ours = (kept.checkpoint, kept.program) == (checkpoint, version("reflectory"))
    return kept.reason if is_ours else None
