"""What to train next: the Optuna study, asked, told and rebuilt, and what its dashboard shows."""

from search.sampling.ask_tell import AskTellLoop
from search.sampling.duplicates import Duplicates
from search.sampling.optuna_study import OptunaStudy
from search.sampling.reconciliation import reconcile
from search.sampling.sampler_context import RememberedPast, sampler_context_of

__all__ = [
    "AskTellLoop",
    "Duplicates",
    "OptunaStudy",
    "RememberedPast",
    "reconcile",
    "sampler_context_of",
]
