"""A study as users know it: the document, its submission, and what is done with it later."""

from search.documents.objectives import OBJECTIVES, Objective
from search.studies.commands import hold, resume
from search.studies.configurations import (
    OverSeeds,
    Qualities,
    Seeded,
    configuration_of,
    is_trained_afresh,
    replicate_seed,
    seeded,
)
from search.studies.feasibility import bytes_wanted, largest_bytes, refusals
from search.studies.memory import MemoryPlace, Need, measuring_need, need_of, of_stack
from search.studies.named_trials import NamedFirst, NamedTrial, needed_checkpoints, precedence
from search.studies.removal import forget_deleted
from search.studies.space_of import space_of
from search.studies.spec import (
    Budget,
    Limits,
    Resources,
    StudySpec,
    Throughput,
    is_of_kind,
    measured_kind,
)
from search.studies.states import ENDED, ended_after_dispatch, enter, in_progress, priority_of
from search.studies.submission import CheckedStudy, check, digest_of, dry_run, store
from search.studies.warm_start import knowledge_of

__all__ = [
    "ENDED",
    "OBJECTIVES",
    "Budget",
    "CheckedStudy",
    "Limits",
    "MemoryPlace",
    "NamedFirst",
    "NamedTrial",
    "Need",
    "Objective",
    "OverSeeds",
    "Qualities",
    "Resources",
    "Seeded",
    "StudySpec",
    "Throughput",
    "bytes_wanted",
    "check",
    "configuration_of",
    "digest_of",
    "dry_run",
    "ended_after_dispatch",
    "enter",
    "forget_deleted",
    "hold",
    "in_progress",
    "is_of_kind",
    "is_trained_afresh",
    "knowledge_of",
    "largest_bytes",
    "measured_kind",
    "measuring_need",
    "need_of",
    "needed_checkpoints",
    "of_stack",
    "precedence",
    "priority_of",
    "refusals",
    "replicate_seed",
    "resume",
    "seeded",
    "space_of",
    "store",
]
