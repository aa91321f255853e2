"""Users' data sets as the API answers with them."""

from datetime import datetime

from pydantic import Field

from models.spec import Spec
from search.documents.datasets import AnyDatasetFacts, ReadingOptions, SamplePreview
from service.api.schema import ByName


class DatasetLinks(ByName):
    """Where a data set is; paths on this server."""

    dataset: str
    page: str = Field(description="for people")


class DatasetDocument(Spec):
    """A data set: what was sent, how it was read, and what it holds."""

    id: str = Field(
        description='a study trains on it by `"task": {"kind": "dataset", "id": ...}`, and reads '
        'arrays by `"task": {"kind": "model_outputs", "data": ...}`'
    )
    name: str
    sha256: str = Field(description="of the file, as it was sent")
    test_sha256: str | None = Field(description="of the file with the test part, if one was sent")
    size_bytes: int = Field(description="of the files as they were sent, both together")
    format: str = Field(description="npz, csv, tsv, ts, parquet, or as csv.gz")
    options: ReadingOptions
    facts: AnyDatasetFacts
    preview: tuple[SamplePreview, ...] = Field(
        description="the beginning of the first few samples; none of arrays"
    )
    created_at: datetime
    links: DatasetLinks


class DatasetPage(Spec):
    """Data sets, newest first."""

    items: tuple[DatasetDocument, ...]
    next_cursor: str | None
