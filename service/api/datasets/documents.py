"""Data sets made of rows."""

from search.documents.datasets import DatasetFacts, ReadingOptions, SamplePreview
from service.api.datasets.schemas import DatasetDocument, DatasetLinks
from service.api.paths import dataset_page_path, dataset_path
from service.api.rows import from_row
from storage.records import DatasetRecord


def dataset_document(dataset: DatasetRecord) -> DatasetDocument:
    """A data set with its links."""
    return from_row(
        DatasetDocument,
        dataset,
        size_bytes=dataset.size,
        format=dataset.suffix.removeprefix("."),
        options=ReadingOptions.model_validate(dataset.options),
        facts=DatasetFacts.model_validate(dataset.facts),
        preview=tuple(SamplePreview.model_validate(sample) for sample in dataset.preview),
        links=DatasetLinks(dataset=dataset_path(dataset.id), page=dataset_page_path(dataset.id)),
    )
