"""Why studies, trials and attempts ended, or wait: a cause to decide by, and a detail for people.

A sentence for people is made of both. No code looks into one: whatever is decided is decided by the
cause.
"""

from enum import StrEnum
from typing import Self


class Cause(StrEnum):
    """A cause, and the words that its sentence begins with."""

    phrase: str

    def __new__(cls, value: str, phrase: str = "") -> Self:
        """A member: its value as it is stored, and its words."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.phrase = phrase
        return member


class StudyCause(Cause):
    """Why a study ended, is paused, or waits."""

    BUDGET = "budget", "budget: "
    """It is used up; the detail is its name."""
    CANCELLED = "cancelled", "cancelled by "
    FAILED = "failed", "failed: "
    """It cannot go on."""
    GRID_EXHAUSTED = "grid_exhausted", "grid_exhausted"
    """Its sampler has no further suggestion."""
    NOTHING_FEASIBLE = "nothing_feasible", "nothing_feasible"
    """So many suggestions were refused that no more are asked for."""
    PAUSED = "paused", "paused by "
    NO_SLOT = "no_slot", "waits for a slot: "
    """It waits for a slot that serves it; the detail is what it wants."""
    DISK_FULL = "disk_full", "disk full: "
    """It waits for room in the store."""
    STORE_AWAY = "store_away", "store away: "
    """It waits for a store that does not answer."""
    OVER_QUOTA = "over_quota"
    """It waits for room in its tenant's quota."""


class TrialCause(Cause):
    """Why a trial ended that was not simply trained to its budget."""

    BUDGET = "budget", "budget: "
    """A budget of the study was used up."""
    EARLY_STOPPING = "early_stopping"
    DUPLICATE = "duplicate", "same configuration as trial "
    MEMORY = "memory", "memory: "
    """No slot has the memory that it is predicted to take."""
    LET_GO = "let_go"
    """It was paused, and the search was over or had no room for it before it went on."""
    SUPERSEDED = "superseded", "superseded before it was trained"
    LIMIT = "limit"
    """It is over a hard limit of the study, or no model can be built of it."""
    UNMEASURED = "unmeasured", "throughput could not be measured: "
    INFEASIBLE = "infeasible"
    """It diverged, or took more memory than there is."""
    FAILED = "failed"
    """Its attempts are used up."""
    CANCELLED = "cancelled", "cancelled by "
    STUDY_FAILED = "study_failed", "failed: "


class AttemptCause(Cause):
    """Why an attempt ended."""

    COMPLETE = "complete", "complete: "
    """The first five are what its worker said last."""
    STOPPED = "stopped", "stopped: "
    INFEASIBLE = "infeasible", "infeasible: "
    FAILED = "failed", "failed: "
    DATA = "data", "data: "
    """The task's data are missing or damaged."""
    IMPOSSIBLE = "impossible", "said what cannot be: "
    """Its worker reported what no honest one can."""
    EXITED = "exited"
    """It raised or left."""
    CRASHED = "crashed"
    """It broke its own process."""
    OUT_OF_MEMORY = "out_of_memory"
    MEMORY_LIMIT = "memory_limit"
    """Out of memory, where another attempt on such a slot would come to the same end."""
    DIED = "died"
    """It ended with what ran it, which was killed."""
    LOST = "lost"
    """Taken from outside: killed, its lease ran out, its machine went away."""
    RESTARTED = "restarted", "the server was stopped"
    """Lost with a coordinator that was told to stop, or to a reboot."""
    MACHINE_STOPPED = "machine_stopped", "its machine was stopped"
    """In order; it stored where it was."""
    PAUSED = "paused", "the study was paused"
    TRIAL_PAUSED = "trial_paused", "its trial is paused: "
    """It stored where it was, and another attempt may go on from there."""
    STUDY_ENDED = "study_ended"


def sentence(cause: Cause | None, detail: str | None) -> str | None:
    """The reason for people; null where nothing is known."""
    phrase = "" if cause is None else cause.phrase
    return f"{phrase}{detail}" if detail else phrase.removesuffix(": ") or None
