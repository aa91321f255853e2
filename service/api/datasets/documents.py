"""Data sets made of rows."""

from pydantic import TypeAdapter

from search.documents.datasets import (
    AnyDatasetFacts,
    ArrayFacts,
    DatasetFacts,
    ReadingOptions,
    SamplePreview,
)
from service.api.datasets.schemas import DatasetDocument, DatasetLinks
from service.api.paths import dataset_page_path, dataset_path
from service.api.rows import from_row
from storage.records import DatasetRecord

_FACTS: TypeAdapter[DatasetFacts | ArrayFacts] = TypeAdapter(AnyDatasetFacts)


def facts_in(dataset: DatasetRecord) -> DatasetFacts | ArrayFacts:
    """What a data set holds."""
    return _FACTS.validate_python(dataset.facts)


def dataset_document(dataset: DatasetRecord) -> DatasetDocument:
    """A data set with its links."""
    return from_row(
        DatasetDocument,
        dataset,
        size_bytes=dataset.size,
        format=dataset.suffix.removeprefix("."),
        options=ReadingOptions.model_validate(dataset.options),
        facts=facts_in(dataset),
        preview=tuple(SamplePreview.model_validate(sample) for sample in dataset.preview),
        links=DatasetLinks(dataset=dataset_path(dataset.id), page=dataset_page_path(dataset.id)),
    )
