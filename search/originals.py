"""The trained network that a study compresses, looked up when the study is submitted."""

from models.model import ModelSpec
from search.compression import OriginalFacts
from search.errors import Fault, SpecRefused
from search.spec import StudySpec
from search.task_fits import misfit
from storage.engine import Database
from storage.errors import NotFound
from storage.uploaded_models import UploadedModels


def with_original(database: Database, spec: StudySpec) -> StudySpec:
    """Fill in what follows from the model that a study compresses.

    Facts that a user sent are not looked at. The task has to be resolved. Whoever is given the
    stored spec later needs no look-up.

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
    model = ModelSpec.model_validate(record.spec)
    kind = model.architecture.kind
    faults: list[Fault] = []
    difference = misfit(model, spec.task.signature())
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
