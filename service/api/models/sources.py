"""What is said of an uploaded model, by what was sent: one class for each sort of file."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, final

from models.graphs.documents import NetworkFacts
from models.model import ModelSpec
from models.report import parameter_report
from search.documents.models import TaskFit
from search.studies.task_fits import fitting_tasks
from search.training.model_reading import ModelOptions
from service.api.models.schemas import (
    ModelDetail,
    ModelDocument,
    ModelLinks,
    ModelSignature,
    NetworkDetail,
    NetworkDocument,
)
from service.api.paths import model_page_path, model_path
from service.api.rows import from_row
from storage.records import UploadedModelRecord


class ModelSource(ABC):
    """An uploaded model and what its row says of it."""

    suffix: ClassVar[str]
    """Of the file that is stored."""

    def __init__(self, record: UploadedModelRecord) -> None:
        """Read the row's facts."""
        self.record = record

    @property
    def filename(self) -> str:
        """What the stored file is called where it is downloaded."""
        return f"{self.record.id}{self.suffix}"

    @abstractmethod
    def document(self) -> ModelDocument | NetworkDocument:
        """The model with its links."""

    @abstractmethod
    def detail(self) -> ModelDetail | NetworkDetail:
        """The same with its tensors or layers."""

    @abstractmethod
    def fits(self) -> tuple[TaskFit, ...]:
        """The tasks, as they are by default, whose shapes are the model's."""

    def links(self) -> ModelLinks:
        """Where it is."""
        path = model_path(self.record.id)
        return ModelLinks(
            model=path, checkpoint=f"{path}/checkpoint", page=model_page_path(self.record.id)
        )


@final
class CheckpointSource(ModelSource):
    """A model of ours or of plain torch layers, stored as a checkpoint of our own form."""

    suffix = ".safetensors"

    def __init__(self, record: UploadedModelRecord) -> None:
        """See `ModelSource`."""
        super().__init__(record)
        self._spec = ModelSpec.model_validate(record.spec)

    def document(self) -> ModelDocument:
        """See `ModelSource`."""
        spec = self._spec
        signature = spec.signature.model_dump()
        if spec.architecture.any_length:
            signature["sequence_length"] = None
        return from_row(
            ModelDocument,
            self.record,
            size_bytes=self.record.size,
            file_size_bytes=self.record.file_size,
            options=ModelOptions.model_validate(self.record.options).model_dump(mode="json"),
            architecture=spec.architecture.model_dump(mode="json"),
            signature=ModelSignature(**signature),
            links=self.links(),
        )

    def detail(self) -> ModelDetail:
        """See `ModelSource`; the model is laid out without memory."""
        report = parameter_report(self._spec)
        return ModelDetail(
            **dict(self.document()),
            totals=report.totals.model_dump(),
            rows=tuple(row.model_dump(mode="json") for row in report.rows),
            fits=self.fits(),
        )

    def fits(self) -> tuple[TaskFit, ...]:
        """See `ModelSource`."""
        return fitting_tasks(self._spec)


@final
class NetworkSource(ModelSource):
    """A network of anybody's, stored as the ONNX file that was sent."""

    suffix = ".onnx"

    def __init__(self, record: UploadedModelRecord) -> None:
        """See `ModelSource`."""
        super().__init__(record)
        self._facts = NetworkFacts.model_validate(record.spec)

    def document(self) -> NetworkDocument:
        """See `ModelSource`."""
        return from_row(
            NetworkDocument,
            self.record,
            size_bytes=self.record.size,
            file_size_bytes=self.record.file_size,
            graph=self._facts.graph,
            kept_because=self._facts.kept_because,
            links=self.links(),
        )

    def detail(self) -> NetworkDetail:
        """See `ModelSource`."""
        return NetworkDetail(**dict(self.document()), layers=self._facts.layers)

    def fits(self) -> tuple[TaskFit, ...]:
        """See `ModelSource`: none, for what it was trained for is known to its user alone."""
        return ()


SOURCES: Mapping[str, type[ModelSource]] = {
    "reflectory": CheckpointSource,
    "torch": CheckpointSource,
    "onnx": NetworkSource,
}
"""By a row's `source`."""


def source_of(record: UploadedModelRecord) -> ModelSource:
    """An uploaded model, by what was sent."""
    return SOURCES[record.source](record)
