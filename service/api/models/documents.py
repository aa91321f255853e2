"""Uploaded models made of rows."""

from models.model import ModelSpec
from models.report import parameter_report
from search.studies.task_fits import fitting_tasks
from search.training.model_reading import ModelOptions
from service.api.models.schemas import ModelDetail, ModelDocument, ModelLinks, ModelSignature
from service.api.paths import model_page_path, model_path
from service.api.rows import from_row
from storage.records import UploadedModelRecord


def model_document(model: UploadedModelRecord) -> ModelDocument:
    """A model with its links."""
    return _document(model, ModelSpec.model_validate(model.spec))


def model_detail(model: UploadedModelRecord) -> ModelDetail:
    """A model with its tensors; it is laid out without memory."""
    spec = ModelSpec.model_validate(model.spec)
    report = parameter_report(spec)
    return ModelDetail(
        **dict(_document(model, spec)),
        totals=report.totals.model_dump(),
        rows=tuple(row.model_dump(mode="json") for row in report.rows),
        fits=fitting_tasks(spec),
    )


def _document(model: UploadedModelRecord, spec: ModelSpec) -> ModelDocument:
    signature = spec.signature.model_dump()
    if spec.architecture.any_length:
        signature["sequence_length"] = None
    path = model_path(model.id)
    return from_row(
        ModelDocument,
        model,
        size_bytes=model.size,
        file_size_bytes=model.file_size,
        options=ModelOptions.model_validate(model.options).model_dump(mode="json"),
        architecture=spec.architecture.model_dump(mode="json"),
        signature=ModelSignature(**signature),
        links=ModelLinks(
            model=path, checkpoint=f"{path}/checkpoint", page=model_page_path(model.id)
        ),
    )
