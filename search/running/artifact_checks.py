"""Whether a file that a worker sends can be its trial's, before it becomes an artifact.

Tensors are judged by the file's header: names, shapes and types have to be those of the trial's
model, which is laid out without memory, and every byte has to belong to one of them. So a file is
as large as its model needs and no larger. The numbers themselves are not read.
"""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from io import SEEK_END
from typing import Any, BinaryIO, Final

import torch
from pydantic import ValidationError

from models.checkpoint import interface_in, layout_of, spec_in
from models.compression import ConversionReport
from models.errors import CheckpointError, SpecError
from models.model import ModelSpec
from models.report import ParameterReport, parameter_report
from search.documents.export_kinds import SAMPLES
from search.errors import Fault, ReportRefused
from search.running.network_checks import check_compressed, check_network_report
from search.tasks import MOST_SAMPLE_BYTES, MOST_SAMPLES, SAMPLES_FORMAT
from search.training.jobs import CONVERSION, EvaluateJob, TrainJob, TrialJob
from search.training.network_jobs import COMPRESSED
from search.training.resume import GROUPS, position_in
from search.training.tensor_files import StoredTensor, contents

_NAMES: Final[Mapping[torch.dtype, str]] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
"""What safetensors calls torch's types."""
_WIDTHS: Final = {name: dtype.itemsize for dtype, name in _NAMES.items()}

_OF_A_PARAMETER = 4
"""Tensors that an optimizer keeps of one parameter at most."""
_GENERATORS = ("order", "torch", "cuda")
_LARGEST_GENERATOR = 64 << 10
_DOCUMENT = 64 << 10
"""Bytes of a JSON document beyond what its model makes it have."""
_OF_A_TENSOR = 4 << 10
"""Bytes of a conversion's report for each tensor."""

_OF_SAMPLES: Final[Mapping[str, tuple[str, ...]]] = {
    "x": ("U8", "I32", "F32"),
    "y": ("I64", "F32"),
    "lengths": ("I64",),
}
"""The tensors of raw samples, and the types that they may have."""

_Layout = Mapping[str, StoredTensor]


def check_artifact(role: str, stream: BinaryIO, job: TrialJob) -> None:
    """Hold a file against the trial that it is sent for; the stream is left at its beginning.

    Raises:
        ReportRefused: it is none that an attempt at this trial can send; says why.
    """
    size = stream.seek(0, SEEK_END)
    stream.seek(0)
    try:
        check = _CHECKS[type(job)].get(role)
        if check is None:
            allowed = ", ".join(_CHECKS[type(job)])
            raise CheckpointError(f"attempts at this trial store no {role!r}, but {allowed}")
        check(stream, size, job)
    except (CheckpointError, SpecError, ValueError, RecursionError) as error:
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            place = ".".join(map(str, first["loc"])) or "document"
            raise ReportRefused([Fault(role, f"{place}: {first['msg']}")]) from error
        raise ReportRefused([Fault(role, str(error))]) from error
    finally:
        stream.seek(0)


def _check_checkpoint(stream: BinaryIO, size: int, job: TrainJob) -> None:
    model = job.trial.model
    layout = _file_layout(model.model_dump_json())
    tensors, metadata = contents(stream, size, widths=_WIDTHS, most_tensors=len(layout))
    if spec_in(metadata, name="the file") != model:
        raise CheckpointError("the spec in its metadata is not that of the trial's model")
    interface_in(metadata, model, name="the file")
    _check_state("", tensors, layout)


def _check_resume(stream: BinaryIO, size: int, job: TrainJob) -> None:
    layout = _layout(job.trial.model.model_dump_json())
    most = (3 + 4 * _OF_A_PARAMETER) * len(layout) + len(_GENERATORS)
    tensors, metadata = contents(stream, size, widths=_WIDTHS, most_tensors=most)
    position = position_in(metadata, job=job)
    if not job.first_epoch <= position.epoch <= job.last_epoch + 1:
        raise CheckpointError(
            f"it goes on at epoch {position.epoch}; allowed are {job.first_epoch} to "
            f"{job.last_epoch + 1}"
        )
    groups: dict[str, dict[str, StoredTensor]] = {name: {} for name in GROUPS}
    for key, tensor in tensors.items():
        group, _, name = key.partition(":")
        if group not in groups:
            raise CheckpointError(f"tensor {key!r} is of no part of it; allowed: {list(GROUPS)}")
        groups[group][name] = tensor
    _check_state("model:", groups["model"], layout)
    for group in ("best", "best_unrounded"):
        if groups[group]:
            _check_state(f"{group}:", groups[group], layout)
    for group in ("optimizer", "best_optimizer"):
        _check_optimizer(groups[group], layout)
    _check_generators(groups["rng"])
    _check_carried(groups["carried"], layout, batch_size=job.trial.training.batch_size)


def _check_samples(stream: BinaryIO, size: int, job: TrainJob) -> None:  # noqa: ARG001
    tensors, metadata = contents(stream, size, widths=_WIDTHS, most_tensors=len(_OF_SAMPLES))
    if metadata.get("format") != SAMPLES_FORMAT:
        raise CheckpointError(
            f"its format is {metadata.get('format')!r}; allowed is {SAMPLES_FORMAT!r}"
        )
    for name in ("x", "y"):
        if name not in tensors:
            raise CheckpointError(f"tensor {name!r} of the samples is missing")
    rows = {tensor.shape[0] if tensor.shape else 0 for tensor in tensors.values()}
    if len(rows) != 1 or not 1 <= max(rows) <= MOST_SAMPLES:
        raise CheckpointError(
            f"its tensors have {sorted(rows)} rows; allowed is one number of them, of 1 to "
            f"{MOST_SAMPLES}"
        )
    for name, tensor in tensors.items():
        if tensor.dtype not in _OF_SAMPLES.get(name, ()):
            allowed = {name: " or ".join(types) for name, types in _OF_SAMPLES.items()}
            raise CheckpointError(f"tensor {name!r} is {tensor.dtype}; allowed are {allowed}")
    if rows != {1}:
        _document(stream, size, MOST_SAMPLE_BYTES + _DOCUMENT)


def _check_report(stream: BinaryIO, size: int, job: TrainJob) -> None:
    right, length = _right_report(job.trial.model.model_dump_json())
    content = _document(stream, size, length + _DOCUMENT)
    if ParameterReport.model_validate_json(content) != right:
        raise CheckpointError("it is not the parameter report of the trial's model")


def _check_conversion(stream: BinaryIO, size: int, job: TrainJob) -> None:
    model = job.trial.model
    if job.first_epoch > 0:
        raise CheckpointError("the trial is none that begins with a conversion")
    layout = _layout(model.model_dump_json())
    content = _document(stream, size, _DOCUMENT + _OF_A_TENSOR * len(layout))
    report = ConversionReport.model_validate_json(content)
    if report.spec not in (None, model) or report.parameters_after != model.parameter_count():
        raise CheckpointError("it tells of a conversion to another model than the trial's")


def _document(stream: BinaryIO, size: int, most: int) -> bytes:
    if size > most:
        raise CheckpointError(f"it has {size} bytes; allowed are {most}")
    return stream.read()


@lru_cache(maxsize=2048)
def _right_report(model: str) -> tuple[ParameterReport, int]:
    """The report of a model, given as JSON, and how long it is."""
    report = parameter_report(ModelSpec.model_validate_json(model))
    return report, len(report.model_dump_json())


@lru_cache(maxsize=2048)
def _file_layout(model: str) -> _Layout:
    """What the checkpoint of a model, given as JSON, holds: integers and scales at few bits."""
    layout = layout_of(ModelSpec.model_validate_json(model))
    return {name: StoredTensor(_NAMES[dtype], shape) for name, (dtype, shape) in layout.items()}


@lru_cache(maxsize=2048)
def _layout(model: str) -> _Layout:
    """What a model, given as JSON, is while it trains: by name its tensors' types and shapes."""
    state = ModelSpec.model_validate_json(model).build_on_meta().state_dict()
    return {
        name: StoredTensor(_NAMES[tensor.dtype], tuple(tensor.shape))
        for name, tensor in state.items()
    }


def _check_state(prefix: str, found: Mapping[str, StoredTensor], layout: _Layout) -> None:
    """Hold tensors against those of the model: all of them, and no other."""
    for name, right in layout.items():
        if name not in found:
            raise CheckpointError(f"tensor '{prefix}{name}' of the trial's model is missing")
        _check_tensor(f"{prefix}{name}", found[name], right)
    unknown = next((name for name in found if name not in layout), None)
    if unknown is not None:
        raise CheckpointError(f"tensor '{prefix}{unknown}' is not part of the trial's model")


def _check_tensor(name: str, found: StoredTensor, *allowed: StoredTensor) -> None:
    if found not in allowed:
        wanted = " or ".join(f"{one.dtype} {list(one.shape)}" for one in allowed)
        raise CheckpointError(
            f"tensor '{name}' is {found.dtype} {list(found.shape)}; allowed is {wanted}"
        )


def _check_optimizer(found: Mapping[str, StoredTensor], layout: _Layout) -> None:
    kept: dict[str, int] = {}
    for name, tensor in found.items():
        parameter = name.rpartition("/")[0]
        if parameter not in layout:
            raise CheckpointError(f"tensor 'optimizer:{name}' is of no parameter of the model")
        kept[parameter] = kept.get(parameter, 0) + 1
        if kept[parameter] > _OF_A_PARAMETER:
            raise CheckpointError(
                f"the optimizer keeps more than {_OF_A_PARAMETER} tensors of '{parameter}'"
            )
        # A moment of every number, or a count of steps.
        count = StoredTensor("F32", ())
        _check_tensor(f"optimizer:{name}", tensor, layout[parameter], count)


def _check_generators(found: Mapping[str, StoredTensor]) -> None:
    for name, tensor in found.items():
        if name not in _GENERATORS or tensor.dtype != "U8" or tensor.numbers > _LARGEST_GENERATOR:
            raise CheckpointError(
                f"tensor 'rng:{name}' is {tensor.dtype} {list(tensor.shape)}; allowed are U8 of up "
                f"to {_LARGEST_GENERATOR} bytes, called {', '.join(_GENERATORS)}"
            )


def _check_carried(found: Mapping[str, StoredTensor], layout: _Layout, *, batch_size: int) -> None:
    """Hold a state between batches against the largest that the model can have."""
    # Complex states are pairs of numbers.
    widest = 2 * max(max(tensor.shape, default=1) for tensor in layout.values())
    most_parts = 2 * _OF_A_PARAMETER * len(layout)
    for name, tensor in found.items():
        part = int(name) if name.isascii() and name.isdecimal() and len(name) < 6 else math.inf
        rows, columns = tensor.shape if len(tensor.shape) == 2 else (math.inf, math.inf)
        if part >= most_parts or rows > batch_size or columns > widest:
            raise CheckpointError(
                f"tensor 'carried:{name}' has the shape {list(tensor.shape)}; allowed are states "
                f"of up to {batch_size} rows and {widest} columns, numbered below {most_parts}"
            )


_CHECKS: Final[Mapping[type[TrialJob], Mapping[str, Callable[[BinaryIO, int, Any], None]]]] = {
    TrainJob: {
        "checkpoint": _check_checkpoint,
        "report": _check_report,
        SAMPLES: _check_samples,
        "resume": _check_resume,
        CONVERSION: _check_conversion,
    },
    EvaluateJob: {COMPRESSED: check_compressed, "report": check_network_report},
}
"""By what is done for a trial, what may be stored of it."""

ROLES: Final = tuple(dict.fromkeys(role for checks in _CHECKS.values() for role in checks))
"""What a worker may store for its trial."""
