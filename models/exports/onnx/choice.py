"""In which form a file is faster: both are timed in turn, beside the dense model's file."""

import gc
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import onnx
from torch import Tensor, nn

from models.example_input import example_input
from models.exports.files import Quantization
from models.exports.onnx.export import FileOptions, GraphForm, export
from models.exports.onnx.runtime import Session
from models.forms import Thin
from models.linear import stored_matrices
from models.math.initialisation import generator_of
from models.model import ModelSpec

FORMS: tuple[GraphForm, ...] = ("node", "loop")

_AS_FAST = 1.03
"""Of two forms as fast as each other to this factor, the smaller file is taken."""
_LEAST_ROUNDS, _MOST_ROUNDS, _SECONDS = 7, 100, 0.3
_DENSE = "dense"
_ROOM = 64
"""Bytes that a file is filled up by at least, which is more than an entry of metadata takes."""


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
        return self.seconds[_DENSE] / self.seconds[self.form]


def forms_of(network: nn.Module) -> tuple[GraphForm, ...]:
    """The forms in which files of a model differ: one, where no matrices have factors."""
    factored = any(isinstance(part.form().parts(), Thin) for part in stored_matrices(network))
    return FORMS if factored else ("node",)


def choose_form(
    network: nn.Module,
    spec: ModelSpec,
    *,
    batch_size: int,
    sequence_length: int | None = None,
    threads: int = 1,
    quantization: Quantization = "none",
) -> FormChoice:
    """Time the model's file in each form in turn with the dense baseline's.

    The faster one is taken; the smaller one, where they differ by 3 % at most. Speeds do not depend
    on the numbers: the dense file has those of a seed.

    Raises:
        ExportError: the model cannot be exported.
    """
    steps = sequence_length or spec.signature.sequence_length
    if not spec.architecture.any_length:
        steps = spec.signature.sequence_length
    x = example_input(spec.signature, batch=batch_size, steps=steps, generator=generator_of(0))
    forms = forms_of(network)
    options = FileOptions(quantization=quantization)
    files = {form: export(network, spec, replace(options, form=form)) for form in forms}
    baseline = spec.dense_twin()
    dense = export(baseline.build(seed=0).eval(), baseline)
    seconds = _in_turn({**files, _DENSE: dense}, x, threads=threads)
    # The smaller one first: another one has to be faster by more than noise.
    chosen, *others = sorted(forms, key=lambda form: len(files[form]))
    for form in others:
        if seconds[form] * _AS_FAST < seconds[chosen]:
            chosen = form
    return FormChoice(form=chosen, batch_size=batch_size, sequence_length=steps, seconds=seconds)


def export_filled(
    network: nn.Module,
    spec: ModelSpec,
    options: FileOptions,
    *,
    extra: Mapping[str, str] | None = None,
) -> bytes:
    """As `export`, with as many bytes in either form: a file's size is known before its form is.

    Raises:
        ExportError: see `export`.
    """
    files = _files(network, spec, options, extra)
    content = files[options.form]
    size = _filled_size(files)
    return content if len(content) == size else _filled(content, size)


def filled_bytes(
    network: nn.Module,
    spec: ModelSpec,
    options: FileOptions,
    *,
    extra: Mapping[str, str] | None = None,
) -> int:
    """The size of what `export_filled` gives, in either form.

    Raises:
        ExportError: see `export`.
    """
    return _filled_size(_files(network, spec, options, extra))


def _files(
    network: nn.Module, spec: ModelSpec, options: FileOptions, extra: Mapping[str, str] | None
) -> dict[GraphForm, bytes]:
    forms: set[GraphForm] = {*forms_of(network), options.form}
    files: dict[GraphForm, bytes] = {}
    for form in forms:
        files[form] = export(network, spec, replace(options, form=form), extra=extra)
    return files


def _filled_size(files: Mapping[GraphForm, bytes]) -> int:
    largest = max(map(len, files.values()))
    return largest if len(files) == 1 else largest + _ROOM


def _filled(content: bytes, size: int) -> bytes:
    """The file with blanks in its metadata, so that it has that size."""
    for key in ("reflectory.fill", "reflectory.filling"):
        blanks = size - len(content) - len(key)
        for count in range(blanks, blanks - _ROOM, -1):
            # Lengths stand before what they are of: a longer one takes a byte more.
            model = onnx.load_from_string(content)
            model.metadata_props.add(key=key, value=" " * count)
            filled = model.SerializeToString(deterministic=True)
            if len(filled) == size:
                return filled
            if len(filled) < size:
                break
    raise AssertionError(f"{len(content)} bytes cannot be filled up to {size}")


def _in_turn(files: Mapping[str, bytes], x: Tensor, *, threads: int) -> dict[str, float]:
    sessions = {name: Session(content, threads=threads) for name, content in files.items()}
    for session in sessions.values():
        session.run(x)
    times: dict[str, list[float]] = {name: [] for name in files}
    names, started = list(files), time.monotonic()
    # The clock of this thread does not see what others do for it.
    now = time.thread_time if threads == 1 else time.perf_counter
    collects = gc.isenabled()
    gc.disable()
    try:
        for turn in range(_MOST_ROUNDS):
            if turn >= _LEAST_ROUNDS and time.monotonic() - started > _SECONDS:
                break
            place = turn % len(names)
            for name in names[place:] + names[:place]:
                began = now()
                sessions[name].run(x)
                times[name].append(now() - began)
    finally:
        if collects:
            gc.enable()
    return {name: statistics.median(found) for name, found in times.items()}
