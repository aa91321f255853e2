"""What the server answers, as the client reads it.

These are the documents of the HTTP contract from the reader's side: small, without the packages
that make them, and patient with fields that a newer server adds.
"""

from service.answers.base import Answer, Downloaded, FieldError, Page, Problem
from service.answers.catalog import Catalog, CatalogEntry, PresetEntry
from service.answers.datasets import Dataset, DatasetFacts
from service.answers.fronts import (
    DimensionImportance,
    Front,
    FrontObjective,
    FrontPoint,
    HypervolumePoint,
    HypervolumePoints,
    Importance,
    ObjectiveImportance,
)
from service.answers.server import Health
from service.answers.studies import (
    ENDED,
    Candidate,
    Dimension,
    DryRun,
    Event,
    ParameterRange,
    Progress,
    Study,
    StudyState,
    TrialCounts,
)
from service.answers.trials import Attempt, Enqueued, Epoch, Epochs, Measurement, Trial, TrialDetail

__all__ = [
    "ENDED",
    "Answer",
    "Attempt",
    "Candidate",
    "Catalog",
    "CatalogEntry",
    "Dataset",
    "DatasetFacts",
    "Dimension",
    "DimensionImportance",
    "Downloaded",
    "DryRun",
    "Enqueued",
    "Epoch",
    "Epochs",
    "Event",
    "FieldError",
    "Front",
    "FrontObjective",
    "FrontPoint",
    "Health",
    "HypervolumePoint",
    "HypervolumePoints",
    "Importance",
    "Measurement",
    "ObjectiveImportance",
    "Page",
    "ParameterRange",
    "PresetEntry",
    "Problem",
    "Progress",
    "Study",
    "StudyState",
    "Trial",
    "TrialCounts",
    "TrialDetail",
]
