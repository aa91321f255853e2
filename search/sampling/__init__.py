"""What to train next: the Optuna study, asked and told, and its copy for people."""

from search.sampling.ask_tell import AskTellLoop
from search.sampling.companions import Companions
from search.sampling.decisions import Decisions
from search.sampling.duplicates import Duplicates
from search.sampling.optuna_copy import OptunaCopy
from search.sampling.optuna_study import OptunaStudy
from search.sampling.sampler_context import RememberedPast, sampler_context_of

__all__ = [
    "AskTellLoop",
    "Companions",
    "Decisions",
    "Duplicates",
    "OptunaCopy",
    "OptunaStudy",
    "RememberedPast",
    "sampler_context_of",
]
