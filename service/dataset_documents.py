"""What the API says of users' data sets."""

from datetime import datetime

from pydantic import Field

from models.spec import Spec
from search.tasks.dataset_facts import DatasetFacts, ReadingOptions, SamplePreview
from storage.records import DatasetRecord


class DatasetLinks(Spec):
    """Where a data set is; paths on this server."""

    dataset: str
    page: str = Field(description="for people")


class DatasetDocument(Spec):
    """A data set: what was sent, how it was read, and what it holds."""

    id: str = Field(description='a study trains on it by `"task": {"kind": "dataset", "id": ...}`')
    name: str
    sha256: str = Field(description="of the file, as it was sent")
    test_sha256: str | None = Field(description="of the file with the test part, if one was sent")
    size_bytes: int = Field(description="of the files as they were sent, both together")
    format: str = Field(description="npz, csv, tsv or ts")
    options: ReadingOptions
    facts: DatasetFacts
    preview: tuple[SamplePreview, ...] = Field(description="the beginning of the first few samples")
    created_at: datetime
    links: DatasetLinks


class DatasetPage(Spec):
    """Data sets, newest first."""

    items: tuple[DatasetDocument, ...]
    next_cursor: str | None


def dataset_path(dataset_id: str) -> str:
    """Where a data set is."""
    return f"/v1/datasets/{dataset_id}"


def dataset_page_path(dataset_id: str) -> str:
    """Where people look at a data set."""
    return f"/datasets/{dataset_id}"


def dataset_document(dataset: DatasetRecord) -> DatasetDocument:
    """A data set with its links."""
    return DatasetDocument.model_validate(
        {
            "id": dataset.id,
            "name": dataset.name,
            "sha256": dataset.sha256,
            "test_sha256": dataset.test_sha256,
            "size_bytes": dataset.size,
            "format": dataset.suffix.removeprefix("."),
            "options": dataset.options,
            "facts": dataset.facts,
            "preview": dataset.preview,
            "created_at": dataset.created_at,
            "links": {
                "dataset": dataset_path(dataset.id),
                "page": dataset_page_path(dataset.id),
            },
        }
    )
