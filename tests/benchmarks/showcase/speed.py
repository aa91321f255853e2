"""How fast a compressed network answers, beside the dense one, and what its file takes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from models.example_input import example_input
from models.exports.onnx.choice import forms_of
from models.exports.onnx.export import FileOptions, export
from models.exports.onnx.runtime import Session
from models.fused import fuse
from models.math.initialisation import generator_of
from models.model import ModelSpec
from tests.benchmarks.cpu.timing import timed

BATCHES = (1, 64)
_DENSE, _OURS = "dense", "compressed"


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Times as fast as the dense network, with the quartiles of the rounds; on one thread.

    What a network computes does not depend on its numbers, so that these are random.
    """

    runtime: str
    batch: int
    ratio: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Files:
    """Bytes of the ONNX files."""

    dense: int
    compressed: int


def measured(spec: ModelSpec, *, rounds: int) -> tuple[list[Speed], Files]:
    """The speeds in both runtimes at both batch sizes, and the files' sizes."""
    baseline = spec.dense_twin()
    network, dense = spec.build(seed=0).eval(), baseline.build(seed=0).eval()
    small, large = fuse(network), fuse(dense)
    files = {form: export(network, spec, FileOptions(form=form)) for form in forms_of(network)}
    dense_file = export(dense, baseline)
    sessions = {form: Session(content) for form, content in files.items()}
    dense_session = Session(dense_file)
    speeds: list[Speed] = []
    for batch in BATCHES:
        steps = spec.signature.sequence_length
        x = example_input(spec.signature, batch=batch, steps=steps, generator=generator_of(0))
        speeds.append(
            _speed("ours", batch, {_OURS: partial(small, x), _DENSE: partial(large, x)}, rounds)
        )
        calls: dict[str, Callable[[], object]] = {_DENSE: partial(dense_session.run, x)}
        calls |= {form: partial(session.run, x) for form, session in sessions.items()}
        # A file is exported in the form that is the faster one at its batch size.
        speeds.append(_speed("onnxruntime", batch, calls, rounds))
    return speeds, Files(
        dense=len(dense_file), compressed=max(len(content) for content in files.values())
    )


def _speed(runtime: str, batch: int, calls: dict[str, Callable[[], object]], rounds: int) -> Speed:
    """Of the fastest that is not dense."""
    timings = timed(calls, baseline=_DENSE, rounds=rounds)
    best = min(
        (timing for name, timing in timings.items() if name != _DENSE),
        key=lambda timing: timing.ratio,
    )
    ratio, low, high = (round(1 / one, 3) for one in (best.ratio, best.ratio_high, best.ratio_low))
    return Speed(runtime=runtime, batch=batch, ratio=ratio, low=low, high=high)
