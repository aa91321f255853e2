"""The files that a trial is exported to: what they say beside the model, and their size."""

import json
from collections.abc import Mapping
from typing import Any, Final

from models.checkpoint import INTERFACE
from models.exports.files import ExportedFile, FileName, FileSize, exported_size
from models.interface import Interface
from search.tasks import AnyTask, Task
from search.training.trial_spec import TrialSpec

LARGEST_INTERFACE: Final = 1 << 20
"""Bytes of an interface in a checkpoint's header, in which each one is escaped."""

_EPOCH_WIDTH = 6
_COMPARED_WIDTH = 6
_ANY_DIGEST = "0" * 64


def stored_interface(interface: Interface) -> str:
    """An interface as JSON; without the names of classes or labels where they take too much."""
    text = interface.model_dump_json()
    if len(json.dumps(text)) <= LARGEST_INTERFACE:
        return text
    unnamed = interface.answer.unnamed()
    return interface.model_copy(update={"answer": unnamed}).model_dump_json()


def prepared_interface(prepared: Mapping[str, Any] | None) -> Interface | None:
    """The interface that preparing a study's data found; None before that."""
    text = (prepared or {}).get("interface")
    return Interface.model_validate_json(text) if isinstance(text, str) else None


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


def onnx_metadata(task: Task, checkpoint_sha256: str, *, compared: int = 0) -> dict[str, str]:
    """What an ONNX file says beside its model; as wide for one number of samples as for another.

    Args:
        task: what it was trained for.
        checkpoint_sha256: of the checkpoint that it is made of.
        compared: raw validation samples that it has to answer as the model does before anybody gets
            it; 0 where normal numbers alone are tried.
    """
    inputs = "validation" if compared else "random"
    return {
        "checkpoint_sha256": checkpoint_sha256,
        "reflectory.task": task.kind,
        "reflectory.verified": f"{inputs:<10} {compared:0{_COMPARED_WIDTH}}",
    }


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
