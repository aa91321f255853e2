"""The file that a user takes away of a trial: what it says beside the model, and its size."""

from collections.abc import Mapping

from models.checkpoint import INTERFACE
from models.exports.files import ExportedFile, FileName, FileSize, exported_size
from models.interface import Interface
from search.tasks import AnyTask, Task
from search.training.deliverables import stored_interface
from search.training.trial_spec import TrialSpec

_EPOCH_WIDTH = 6
_ANY_DIGEST = "0" * 64


def checkpoint_metadata(
    task: AnyTask,
    trial: TrialSpec,
    *,
    epoch: int,
    continues: int | None,
    interface: Interface | None,
) -> dict[str, str]:
    """What a checkpoint says beside its model; as wide for one epoch as for another."""
    found = {} if interface is None else {INTERFACE: stored_interface(interface)}
    found |= {
        "task": task.model_dump_json(),
        "trial": trial.model_dump_json(),
        "epoch": f"{epoch:0{_EPOCH_WIDTH}}",
    }
    return found if continues is None else {**found, "continues": str(continues)}


def onnx_metadata(task: Task, checkpoint_sha256: str) -> dict[str, str]:
    """What an ONNX file says beside its model: its task, and the checkpoint it was made of."""
    return {"checkpoint_sha256": checkpoint_sha256, "reflectory.task": task.kind}


def file_size(
    task: AnyTask,
    trial: TrialSpec,
    export: ExportedFile,
    interface: Interface | None,
    *,
    continues: int | None = None,
) -> FileSize:
    """The size of the file that a trial will have, before it is trained.

    `interface` is what preparing the study's data found; None before that.

    Raises:
        SpecError: the model cannot be built.
        ExportError: there is no such file of it.
    """
    metadata: Mapping[FileName, Mapping[str, str]] = {
        "onnx": onnx_metadata(task, _ANY_DIGEST),
        "checkpoint": checkpoint_metadata(
            task, trial, epoch=0, continues=continues, interface=interface
        ),
        "c": {},
    }
    # A checkpoint says it in its metadata alone.
    around = None if export.file == "checkpoint" else interface
    return exported_size(trial.model, export, around, extra=metadata[export.file])
