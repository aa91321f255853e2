"""What an honest worker could say and send, made without training or measuring anything."""

from collections.abc import Mapping

import torch

from models.checkpoint import save_bytes
from models.report import parameter_report
from search.measuring.throughput import Estimate, ThroughputRecord
from search.training.jobs import MeasureJob, MeasurementReport, Shape, TrainJob
from search.training.resume import Position, ResumeState, to_bytes

DEVICE = "no processor"

_LATENCIES = {"calls": 1000, "latency_p50": 0.001, "latency_p99": 0.002}


def files(job: TrainJob, *, seed: int = 1) -> Mapping[str, bytes]:
    """Every role that a trial which begins anew stores; another seed gives other numbers."""
    model = job.trial.model
    return {
        "resume": resume_file(job, seed=seed),
        "checkpoint": save_bytes(model.build(seed=seed), model),
        "report": parameter_report(model).model_dump_json().encode(),
    }


def resume_file(job: TrainJob, *, epoch: int = 1, seed: int = 1, kept_bytes: int = 0) -> bytes:
    """A state to resume from; so many bytes of it differ from time to time."""
    module = job.trial.model.build(seed=seed)
    state = dict(module.state_dict())
    moments = {f"{name}/exp_avg": torch.zeros_like(p) for name, p in module.named_parameters()}
    generators = {"torch": torch.get_rng_state()}
    if kept_bytes > 0:
        generators["order"] = torch.randint(0, 256, (kept_bytes,), dtype=torch.uint8)
    resume = ResumeState(
        Position(epoch=epoch, best_epoch=epoch),
        model=state,
        best={name: tensor.clone() for name, tensor in state.items()},
        optimizer=moments,
        generators=generators,
        carried={},
    )
    return to_bytes(resume, job=job)


def measurement(
    job: MeasureJob, shape: Shape, *, speed: float, ratio: float, seconds: float = 0.1
) -> MeasurementReport:
    """A measurement of one shape of a job."""

    def estimate(median: float) -> Estimate:
        return Estimate(median=median, low=0.99 * median, high=1.01 * median)

    device = job.device or DEVICE
    report = parameter_report(shape.model)
    record = ThroughputRecord(
        device=device,
        driver=None,
        torch_version=torch.__version__,
        threads=job.threads,
        mode=job.mode,
        batch_size=job.batch_size,
        sequence_length=job.sequence_length or shape.model.signature.sequence_length,
        dtype="float32",
        evaluation_form=("stored",),
        backend=("torch",),
        dense_backend=("torch",),
        clock="thread",
        warm_up_rounds=2,
        rounds=10,
        repetitions=1,
        dense_repetitions=1,
        samples_per_second=estimate(speed),
        dense_samples_per_second=estimate(speed / ratio),
        ratio=estimate(ratio),
        parameters=report.totals.parameters,
        dense_parameters=report.dense_twin.parameters,
        multiply_adds=report.totals.multiply_adds,
        dense_multiply_adds=report.dense_twin.multiply_adds,
        load_average=0.0,
        runtime=job.runtime,
        **(_LATENCIES if job.latency else {}),
    )
    return MeasurementReport(
        trial=shape.trial,
        shape_key=shape.shape_key,
        device=device,
        samples_per_second=speed,
        ratio=ratio,
        latency_p50=record.latency_p50,
        latency_p99=record.latency_p99,
        seconds=seconds,
        record=record.model_dump(mode="json"),
    )
