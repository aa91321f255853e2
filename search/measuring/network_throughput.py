"""The throughput of a network's files, each measured in turn with the original."""

import os
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version

import torch

from models.graphs.sessions import GraphSession
from search.graphs.opened_network import OpenedNetwork
from search.graphs.picks import Picks
from search.measuring.runtimes import Subject
from search.measuring.throughput import ThroughputRecord, circumstances, report_of
from search.measuring.timing import timed_in_turn
from search.training.jobs import MeasurementReport
from search.training.network_jobs import MeasureNetworkJob, NetworkShape


def measure_network(
    job: MeasureNetworkJob,
    network: OpenedNetwork,
    *,
    alone: Callable[[], AbstractContextManager[None]] = nullcontext,
    beside: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Generator[MeasurementReport]:
    """Measure files one after the other, as `search.measuring.throughput.measure` does.

    They run on the first samples of the choosing part, as many as a call has. The original is
    measured by itself. Files are made within `beside`, and timed within `alone`.

    Raises:
        GraphRefused: onnxruntime does not run a file.
        ConversionError: a layer cannot be stored as picked.
    """
    for shape in job.shapes:
        record, seconds = _measured(shape, job, network, alone=alone, beside=beside)
        yield report_of(record, trial=shape.trial, shape_key=shape.shape_key, seconds=seconds)


def _measured(
    shape: NetworkShape,
    job: MeasureNetworkJob,
    network: OpenedNetwork,
    *,
    alone: Callable[[], AbstractContextManager[None]],
    beside: Callable[[], AbstractContextManager[None]],
) -> tuple[ThroughputRecord, float]:
    device, picks = torch.device("cpu"), shape.network.picks
    load_average = os.getloadavg()[0]
    with beside():
        own = original = _subject(network.original, job, network)
        if not shape.network.is_original:
            own = _subject(network.evaluator.content(picks), job, network)
    timed = timed_in_turn(
        [own],
        [] if own is original else [original],
        device=device,
        threads=job.threads,
        alone=alone,
        latency=job.latency,
    )
    record = ThroughputRecord(
        **circumstances(timed, job, device=device, load_average=load_average),
        sequence_length=1,
        parameters=shape.parameter_count(),
        dense_parameters=shape.dense_parameter_count(),
        multiply_adds=_multiply_adds(network, picks),
        dense_multiply_adds=_multiply_adds(network, {}),
        runtime_version=version("onnxruntime"),
    )
    return record, timed.held_seconds


def _subject(content: bytes, job: MeasureNetworkJob, network: OpenedNetwork) -> Subject:
    session = GraphSession(content, threads=job.threads)
    feed = network.evaluator.samples.first_feed(job.batch_size)
    outputs = network.evaluator.outputs

    def call() -> None:
        session.run(feed, outputs)

    return Subject(call, ("onnxruntime",), (), "float32")


def _multiply_adds(network: OpenedNetwork, picks: Picks) -> int:
    return round(network.evaluator.multiply_adds(picks))
