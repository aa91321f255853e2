"""In which form a file is faster: both are timed in turn, beside the dense model's file."""

import gc
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from models.example_input import example_input
from models.exports.onnx.export import FileOptions, GraphForm, export
from models.exports.onnx.runtime import Session
from models.math.initialisation import generator_of
from models.model import ModelSpec

FORMS: tuple[GraphForm, ...] = ("node", "loop")

_AS_FAST = 1.03
"""Of two forms as fast as each other to this factor, the smaller file is taken."""
_LEAST_ROUNDS, _MOST_ROUNDS, _SECONDS = 7, 100, 0.3


@dataclass(frozen=True, kw_only=True)
class FormChoice:
    """What was found, at one batch size and length, on one thread."""

    form: GraphForm
    batch_size: int
    sequence_length: int
    seconds: Mapping[str, float]
    """Median of one call, by form, and of the dense model's file as `dense`."""

    @property
    def speed_of_dense(self) -> float:
        """How many times as fast as the dense model's file."""
        return self.seconds["dense"] / self.seconds[self.form]


def choose_form(
    network: nn.Module, spec: ModelSpec, *, batch_size: int, sequence_length: int | None = None
) -> FormChoice:
    """Time the model's file in both forms in turn with the dense baseline's, by CPU time.

    The faster one is taken; the smaller one, where they differ by 3 % at most. Speeds do not depend
    on the numbers: the dense file has those of a seed.

    Raises:
        ExportError: the model cannot be exported.
    """
    steps = sequence_length or spec.signature.sequence_length
    x = example_input(spec.signature, batch=batch_size, steps=steps, generator=generator_of(0))
    files = {form: export(network, spec, FileOptions(form=form)) for form in FORMS}
    baseline = spec.dense_twin()
    dense = export(baseline.build(seed=0).eval(), baseline)
    seconds = _in_turn({**files, "dense": dense}, x)
    smaller, larger = sorted(FORMS, key=lambda form: len(files[form]))
    form = larger if seconds[larger] * _AS_FAST < seconds[smaller] else smaller
    return FormChoice(form=form, batch_size=batch_size, sequence_length=steps, seconds=seconds)


def _in_turn(files: Mapping[str, bytes], x: Tensor) -> dict[str, float]:
    sessions = {name: Session(content) for name, content in files.items()}
    for session in sessions.values():
        session.run(x)
    times: dict[str, list[float]] = {name: [] for name in files}
    names, started = list(files), time.monotonic()
    collects = gc.isenabled()
    gc.disable()
    try:
        for turn in range(_MOST_ROUNDS):
            if turn >= _LEAST_ROUNDS and time.monotonic() - started > _SECONDS:
                break
            place = turn % len(names)
            for name in names[place:] + names[:place]:
                began = time.thread_time()
                sessions[name].run(x)
                times[name].append(time.thread_time() - began)
    finally:
        if collects:
            gc.enable()
    return {name: statistics.median(found) for name, found in times.items()}
