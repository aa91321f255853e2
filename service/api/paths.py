"""Where things are on a server. Ids are opaque: whatever one holds, it stays one step of a path."""

from hashlib import blake2b
from urllib.parse import quote

STUDIES = "/v1/studies"
COLLECTIONS = "/v1/collections"
DATASETS = "/v1/datasets"
MODELS = "/v1/models"
KEYS = "/v1/keys"
PAPERS = "/v1/papers"


def study_path(study_id: str) -> str:
    """Where a study is."""
    return f"{STUDIES}/{quote(study_id, safe='')}"


def dashboard_number(study_id: str) -> int:
    """The number by which Optuna's dashboard calls a study: 32 bits of its id's digest, not 0."""
    return int.from_bytes(blake2b(study_id.encode(), digest_size=4).digest()) or 1


def dashboard_path(study_id: str) -> str:
    """Where Optuna's dashboard shows a study."""
    return f"/dashboard/studies/{dashboard_number(study_id)}"


def trials_path(study_id: str) -> str:
    """Where a study's trials are."""
    return f"{study_path(study_id)}/trials"


def trial_path(study_id: str, number: int) -> str:
    """Where a trial is."""
    return f"{trials_path(study_id)}/{number}"


def collection_path(collection_id: str) -> str:
    """Where a collection is."""
    return f"{COLLECTIONS}/{quote(collection_id, safe='')}"


def dataset_path(dataset_id: str) -> str:
    """Where a data set is."""
    return f"{DATASETS}/{quote(dataset_id, safe='')}"


def model_path(model_id: str) -> str:
    """Where an uploaded model is."""
    return f"{MODELS}/{quote(model_id, safe='')}"


def table_path(table: str) -> str:
    """Where a table of the papers is."""
    return f"{PAPERS}/{quote(table, safe='')}"


def collection_page_path(collection_id: str) -> str:
    """Where people look at a collection."""
    return f"/collections/{quote(collection_id, safe='')}"


def dataset_page_path(dataset_id: str) -> str:
    """Where people look at a data set."""
    return f"/datasets/{quote(dataset_id, safe='')}"


def model_page_path(model_id: str) -> str:
    """Where people look at a model."""
    return f"/models/{quote(model_id, safe='')}"


def key_path(key_id: str) -> str:
    """Where an API key is."""
    return f"{KEYS}/{quote(key_id, safe='')}"


def rotation_path(key_id: str) -> str:
    """Where an API key is rotated."""
    return f"{key_path(key_id)}/rotate"
