"""Studies that compress a network of others: from what is sent to what is stored, and checks."""

import math
from collections.abc import Iterator, Mapping

import numpy as np

from models.graphs.documents import NetworkFacts
from search.documents.datasets import ArrayPort
from search.documents.models import ONNX_SOURCE
from search.documents.runtimes import RUNTIME_KINDS
from search.errors import DataError, Fault, SpecRefused
from search.graphs.metrics import AnyMetric, Kl, RelativeError
from search.graphs.model_outputs import ModelOutputs, NetworkTaskFacts
from search.graphs.network_data import feeds_one_by_one
from search.studies.spec import StudySpec
from search.tasks import DataSources
from storage.engine import Database
from storage.errors import NotFound
from storage.records import UploadedModelRecord
from storage.repositories.uploads import UploadedModels


def resolved_network(
    database: Database, spec: StudySpec, task: ModelOutputs, sources: DataSources
) -> StudySpec:
    """Fill in what follows from the network and its data; facts that a user sent are not looked at.

    Raises:
        SpecRefused: there is no such network or no such data, or they do not go together.
    """
    record = _network(database, task)
    facts = NetworkFacts.model_validate(record.spec)
    if sources.datasets is None:
        raise SpecRefused([Fault("task.data", "no uploads are kept here")])
    try:
        found = sources.datasets.arrays(task.data)
        digest = sources.datasets.digest(task.data)
    except DataError as error:
        raise SpecRefused([Fault("task.data", str(error))]) from error
    arrays = {port.name: port for port in found.arrays}
    if faults := [*_unknown_names(task, facts), *_misnamed_arrays(task, [*arrays])]:
        raise SpecRefused(faults)
    known = NetworkTaskFacts(
        sha256=record.sha256,
        data_sha256=digest,
        inputs=tuple(port for port in facts.graph.inputs if port.name not in task.fixed),
        file_bytes=record.file_size,
        weight_bytes=facts.graph.weight_bytes,
        parameters=facts.parameters,
        data_bytes=found.samples * sum(map(_sample_bytes, found.arrays)),
        metric=_default_metric(task, facts),
    )
    whole = task.model_copy(update={"facts": known})
    whole.refuse_misfits(arrays, found.samples)
    if whole.compared_by.needs_labels and task.labels is None:
        message = f"missing; the metric {whole.compared_by.kind!r} needs them: name their array"
        raise SpecRefused([Fault("task.labels", message)])
    return spec.model_copy(update={"task": whole})


def refuse_of_a_network(spec: StudySpec, task: ModelOutputs) -> None:
    """Refuse what a study asks of a network that it cannot have; the task is resolved.

    Raises:
        SpecRefused: names the part, its value, and what is allowed.
    """
    faults = [*_measuring_faults(spec, task), *_limit_faults(spec)]
    if spec.sampler.kind != "by_layer":
        message = f"{spec.sampler.kind} trains models; allowed with model_outputs is by_layer"
        faults.append(Fault("sampler", message))
    if spec.duplicates != "reuse":
        message = f"{spec.duplicates!r}, and nothing is proposed twice; allowed is 'reuse'"
        faults.append(Fault("duplicates", message))
    if faults:
        raise SpecRefused(faults)


def _network(database: Database, task: ModelOutputs) -> UploadedModelRecord:
    try:
        with database.read() as session:
            record = UploadedModels(session).get(task.model)
    except NotFound as error:
        raise SpecRefused([Fault("task.model", str(error))]) from error
    if record.source != ONNX_SOURCE:
        message = (
            f"the model {record.id!r} is no ONNX file, but came as {record.source}; allowed are "
            "uploads of .onnx files, or another task with compress.model"
        )
        raise SpecRefused([Fault("task.model", message)])
    return record


def _unknown_names(task: ModelOutputs, facts: NetworkFacts) -> Iterator[Fault]:
    """Inputs and outputs that the network has not."""
    inputs = {port.name for port in facts.graph.inputs}
    outputs = {port.name for port in facts.graph.outputs}
    wanted: Mapping[str, tuple[list[str], set[str]]] = {
        "inputs": ([*task.inputs], inputs),
        "fixed": ([*task.fixed], inputs),
        "zeros": ([*task.zeros], inputs),
        "outputs": ([*(task.outputs or ())], outputs),
    }
    for part, (names, there) in wanted.items():
        for name in names:
            if name not in there:
                message = f"the network has none of this name; allowed are {_listed(there)}"
                yield Fault(f"task.{part}.{name}", message)


def _misnamed_arrays(task: ModelOutputs, arrays: list[str]) -> Iterator[Fault]:
    """Arrays that the data have not."""
    for name, array in task.inputs.items():
        if array not in arrays:
            message = f"the data have no array {array!r}; allowed are {_listed(arrays)}"
            yield Fault(f"task.inputs.{name}", message)
    if task.labels is not None and task.labels not in arrays:
        message = f"the data have no array {task.labels!r}; allowed are {_listed(arrays)}"
        yield Fault("task.labels", message)


def _default_metric(task: ModelOutputs, facts: NetworkFacts) -> AnyMetric:
    outputs = task.outputs or [port.name for port in facts.graph.outputs]
    return Kl() if {*outputs} <= {*facts.graph.probabilities} else RelativeError()


def _sample_bytes(port: ArrayPort) -> int:
    return math.prod(port.shape) * np.dtype(port.type).itemsize


def _measuring_faults(spec: StudySpec, task: ModelOutputs) -> Iterator[Fault]:
    wanted, runtime = spec.throughput, "onnxruntime"
    kind = RUNTIME_KINDS[runtime]
    if wanted.runtime != runtime:
        message = f"{wanted.runtime!r} runs no network of others; allowed is {runtime!r}"
        yield Fault("throughput.runtime", message)
    if wanted.mode not in kind.modes:
        message = f"{wanted.mode!r}, and nothing is trained; allowed is {kind.modes[0]!r}"
        yield Fault("throughput.mode", message)
    if wanted.sequence_length is not None:
        message = f"{wanted.sequence_length}, and lengths are those of the data; allowed is null"
        yield Fault("throughput.sequence_length", message)
    if feeds_one_by_one(task.known.inputs, each=task.each) and wanted.batch_size != 1:
        message = f"{wanted.batch_size}, and samples of this network are fed one by one; allowed: 1"
        yield Fault("throughput.batch_size", message)
    if spec.resources.device == "cuda":
        yield Fault("resources.device", "'cuda'; networks run on the CPU: allowed are cpu and any")


def _limit_faults(spec: StudySpec) -> Iterator[Fault]:
    for name in ("multiply_adds", "memory_bytes", "state_bytes"):
        value = getattr(spec.limits, name)
        if value is not None:
            message = (
                f"{value} is not known of a network of others; allowed are agreement, bytes, "
                "parameters, latency_seconds and min_throughput_ratio"
            )
            yield Fault(f"limits.{name}", message)


def _listed(names: set[str] | list[str]) -> str:
    return ", ".join(map(repr, sorted(names))) or "none"
