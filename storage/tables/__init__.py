"""The tables, one file per aggregate; every one is named here, so that the metadata is whole.

Their names are not Optuna's, whose tables may be in the same database. Rows never leave this
package: repositories turn them into the records of `storage.records`.
"""

from storage.tables.account import ApiKeyRow, AuditEventRow, BrowserSessionRow, TenantQuotaRow
from storage.tables.artifact import ArtifactRow, TrialArtifactRow
from storage.tables.attempt import ATTEMPT_IS_OPEN, ATTEMPT_RUNS, AttemptLogRow, AttemptRow
from storage.tables.base import Table
from storage.tables.collection import CollectionRow, CollectionStudyRow
from storage.tables.command import CommandRow
from storage.tables.delivery import WebhookDeliveryRow
from storage.tables.machine import BookingRow, CoordinatorRow, MachineRow
from storage.tables.measurement import MeasurementRow
from storage.tables.study import EventRow, ExchangeRow, StudyRow
from storage.tables.trial import MetricRow, TrialRow, WarmStartTrialRow
from storage.tables.upload import DatasetRow, UploadedModelRow, UploadRow

__all__ = [
    "ATTEMPT_IS_OPEN",
    "ATTEMPT_RUNS",
    "ApiKeyRow",
    "ArtifactRow",
    "AttemptLogRow",
    "AttemptRow",
    "AuditEventRow",
    "BookingRow",
    "BrowserSessionRow",
    "CollectionRow",
    "CollectionStudyRow",
    "CommandRow",
    "CoordinatorRow",
    "DatasetRow",
    "EventRow",
    "ExchangeRow",
    "MachineRow",
    "MeasurementRow",
    "MetricRow",
    "StudyRow",
    "Table",
    "TenantQuotaRow",
    "TrialArtifactRow",
    "TrialRow",
    "UploadRow",
    "UploadedModelRow",
    "WarmStartTrialRow",
    "WebhookDeliveryRow",
]
