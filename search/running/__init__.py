"""Trials and attempts under way: what is reported of them, what that changes, and how they end."""

from search.running.ask_times import AskHistogram, AskTimes
from search.running.attempts import measurement_id, token_digest
from search.running.claim import ClaimedDatabase
from search.running.known_trials import KnownTrials
from search.running.losses import (
    abandon,
    fault_of_data,
    gave_up,
    is_infeasible,
    is_suspect,
    lose,
    may_be_guilty,
    why_given_up,
)
from search.running.study_context import GRACE_SECONDS, Dispatcher, Look, StudyContext
from search.running.trial_endings import (
    BROKEN,
    announce_trial,
    begin_trial,
    end_trial,
    ended_with,
    let_go,
    still_stands,
)

__all__ = [
    "BROKEN",
    "GRACE_SECONDS",
    "AskHistogram",
    "AskTimes",
    "ClaimedDatabase",
    "Dispatcher",
    "KnownTrials",
    "Look",
    "StudyContext",
    "abandon",
    "announce_trial",
    "begin_trial",
    "end_trial",
    "ended_with",
    "fault_of_data",
    "gave_up",
    "is_infeasible",
    "is_suspect",
    "let_go",
    "lose",
    "may_be_guilty",
    "measurement_id",
    "still_stands",
    "token_digest",
    "why_given_up",
]
