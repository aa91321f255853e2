"""The file that a user takes away of a trial: what it says beside the model, and its size."""

from collections.abc import Mapping

from models.checkpoint import INTERFACE
from models.exports.files import ExportedFile, FileName, exported_bytes
from search.tasks import AnyTask
from search.training.trial_spec import TrialSpec

_EPOCH_WIDTH = 6
_ANY_DIGEST = "0" * 64


def checkpoint_metadata(
    task: AnyTask,
    trial: TrialSpec,
    *,
    interface: str | None,
    epoch: int,
    continues: int | None,
) -> dict[str, str]:
    """What a checkpoint says beside its model; as wide for one epoch as for another.

    `interface` is what `stored_interface` gives; null: nothing stands around the model.
    """
    found = {
        **({} if interface is None else {INTERFACE: interface}),
        "task": task.model_dump_json(),
        "trial": trial.model_dump_json(),
        "epoch": f"{epoch:0{_EPOCH_WIDTH}}",
    }
    return found if continues is None else {**found, "continues": str(continues)}


def onnx_metadata(checkpoint_sha256: str) -> dict[str, str]:
    """What an ONNX file says beside its model: which checkpoint it was made of."""
    return {"checkpoint_sha256": checkpoint_sha256}


def file_bytes(
    task: AnyTask,
    trial: TrialSpec,
    export: ExportedFile,
    *,
    interface: str | None,
    continues: int | None = None,
) -> int:
    """The size of the file that a trial will have, before it is trained.

    `interface` is what `stored_interface` gives, known once the data were looked at: before
    that, no file is smaller than this says.

    Raises:
        SpecError: the model cannot be built.
        ExportError: there is no such file of it.
    """
    metadata: Mapping[FileName, Mapping[str, str]] = {
        "onnx": onnx_metadata(_ANY_DIGEST),
        "checkpoint": checkpoint_metadata(
            task, trial, interface=interface, epoch=0, continues=continues
        ),
    }
    return exported_bytes(trial.model, export, extra=metadata[export.file])
