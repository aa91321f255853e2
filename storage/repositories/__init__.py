"""The rows of studies and of all that belongs to them: one repository per aggregate."""

from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempt_logs import AttemptLogRecord, AttemptLogs
from storage.repositories.attempts import Attempts, KeptAlive
from storage.repositories.collections import Collections
from storage.repositories.commands import Commands
from storage.repositories.events import Events
from storage.repositories.exchanges import ExchangeRecords, Exchanges
from storage.repositories.measurements import Measurements, Speed
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies, listed
from storage.repositories.trial_summaries import AnyTrial, TrialSummary
from storage.repositories.trials import TrialOrder, Trials
from storage.repositories.uploads import Datasets, UploadedModels
from storage.repositories.warm_start_trials import WarmStartTrialRecords, WarmStartTrials
from storage.repositories.webhooks import Deliveries

__all__ = [
    "AnyTrial",
    "ArtifactRows",
    "AttemptLogRecord",
    "AttemptLogs",
    "Attempts",
    "Collections",
    "Commands",
    "Datasets",
    "Deliveries",
    "Events",
    "ExchangeRecords",
    "Exchanges",
    "KeptAlive",
    "Measurements",
    "Metrics",
    "Speed",
    "Studies",
    "TrialOrder",
    "TrialSummary",
    "Trials",
    "UploadedModels",
    "WarmStartTrialRecords",
    "WarmStartTrials",
    "listed",
]
