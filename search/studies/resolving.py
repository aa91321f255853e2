"""From what a user sends to what a study is stored as: facts that follow from data and models."""

from collections.abc import Iterator

from models.model import ModelSpec
from models.spec import Spec
from search.documents.models import ONNX_SOURCE
from search.errors import DataError, Fault, SpecRefused
from search.spaces import ARCHITECTURE_KINDS, TORCH_DEFAULTS, Scalar
from search.studies.spec import StudySpec
from search.studies.task_fits import misfit
from search.tasks import DataSources
from search.training.compression import OriginalFacts
from storage.engine import Database
from storage.errors import NotFound
from storage.repositories.uploads import UploadedModels

_NAMING = ("id", "name")
"""The fields by which a task names its data, where it does."""


def resolved(spec: StudySpec, sources: DataSources) -> StudySpec:
    """Fill in what follows from the task's data; facts that a user sent are not looked at.

    A coordinator or a worker that reads the stored spec later finds the facts in it.

    Raises:
        SpecRefused: a file or an upload is missing or damaged; the message names it, and where it
            belongs.
    """
    task = spec.trained_task
    try:
        found = task.resolved(sources)
    except DataError as error:
        raise SpecRefused([Fault(_path(task), str(error))]) from error
    return spec.model_copy(update={"task": found})


def with_original(database: Database, spec: StudySpec) -> StudySpec:
    """Fill in what follows from the model that a study compresses.

    Facts that a user sent are not looked at. The task has to be resolved. Readers of the stored
    spec need no look-up.

    Raises:
        SpecRefused: there is no such model, it does not fit the task, or the study names
            architectures that it is not.
    """
    if spec.compress is None:
        return spec
    try:
        with database.read() as session:
            record = UploadedModels(session).get(spec.compress.model)
    except NotFound as error:
        raise SpecRefused([Fault("compress.model", str(error))]) from error
    if record.source == ONNX_SOURCE:
        message = (
            f"{record.id!r} is an ONNX file, which is not trained; allowed are uploads of "
            "safetensors, or the task model_outputs with task.model"
        )
        raise SpecRefused([Fault("compress.model", message)])
    model = ModelSpec.model_validate(record.spec)
    kind = model.architecture.kind
    faults: list[Fault] = []
    difference = misfit(model, spec.trained_task.signature())
    if difference is not None:
        faults.append(Fault("compress.model", f"{record.id!r} does not fit the task: {difference}"))
    if "architectures" in spec.model_fields_set and spec.architectures != (kind,):
        message = (
            f"the model {record.id!r} is {kind!r}, not {', '.join(spec.architectures)}; allowed is "
            f"[{kind!r}], or nothing"
        )
        faults.append(Fault("architectures", message))
    if faults:
        raise SpecRefused(faults)
    facts = OriginalFacts(sha256=record.sha256, architecture=model.architecture)
    compress = spec.compress.model_copy(update={"facts": facts})
    return spec.model_copy(update={"compress": compress, "architectures": (kind,)})


def with_defaults(spec: StudySpec) -> StudySpec:
    """A new study with what the search pins where the document says nothing.

    A study that compresses a model has that model's own fields.
    """
    if spec.compressed_model is not None:
        return spec
    pins = {name: TORCH_DEFAULTS[name] for name in _unsaid(spec)}
    return spec.model_copy(update={"space": {**spec.space, **pins}})


def without_defaults(spec: StudySpec) -> StudySpec:
    """A stored study as it is to be sent for the same again: `with_defaults` backwards.

    One that was stored without the pins is sent with the architectures' own defaults, by name.
    """
    if spec.compressed_model is not None:
        return spec
    own = {name: _own_default(name) for name in _unsaid(spec)}
    said = {name: value for name, value in spec.space.items() if TORCH_DEFAULTS.get(name) != value}
    return spec.model_copy(update={"space": {**said, **own}})


def _unsaid(spec: StudySpec) -> Iterator[str]:
    """The fields of the architectures that the overrides do not name, by no name of theirs."""
    for name in TORCH_DEFAULTS:
        kind, _, field = name.partition(".")
        if kind in spec.architectures and not spec.space.keys() & {name, field}:
            yield name


def _own_default(name: str) -> Scalar:
    kind, _, field = name.partition(".")
    return ARCHITECTURE_KINDS[kind].model_fields[field].default


def _path(task: Spec) -> str:
    naming = [name for name in _NAMING if name in type(task).model_fields]
    return ".".join(["task", *naming[:1]])
