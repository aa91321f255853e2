"""`python -m tests.benchmarks.deliverables`: what the files of a model take, and how fast they are.

ONNX files of structured models in both forms beside the dense model's file, at batches of 1 and 64;
their bytes at 32, 8 and 4 bits; then the C files of `tests.benchmarks.c_exports`. `--quick` takes
the smallest size and two rounds, `--grid` every architecture and parametrization at three sizes, in
fewer rounds, and says which files miss what is wanted of them; `--out FILE` writes the tables too.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import onnxruntime
import torch

from models.errors import SpecError
from models.example_input import example_input
from models.exports.onnx.choice import FORMS, forms_of
from models.exports.onnx.export import FileOptions, export
from models.exports.onnx.runtime import Session
from models.math.initialisation import generator_of
from models.model import ModelSpec
from tests.benchmarks import c_exports
from tests.benchmarks.cpu.machine import described
from tests.benchmarks.cpu.timing import timed

SIZES = (64, 128, 256, 512)
BATCHES = (1, 64)
STEPS = INPUTS = 28
OUTPUTS = 10
BITS = (32, 8, 4)
GRID_SIZES = (32, 128, 512)
GRID_ROUNDS = 5
_DENSE = "dense"
_CREATIONS = 5
_LEAST_SPEED = 0.95
_MOST_OVER_DENSE = 1.02
_AROUND_BYTES, _STAGE_BYTES = 6 * 1024, 307

_CELLS: Mapping[str, dict[str, Any]] = {
    "rnn": {"kind": "rnn", "activation": "tanh"},
    "lstm": {"kind": "lstm"},
    "gru": {"kind": "gru", "reset": "after"},
    "urnn": {"kind": "urnn"},
    "mlp": {"kind": "mlp", "layers": 2},
    "resnet": {"kind": "resnet", "blocks": 2},
    "highway": {"kind": "highway", "layers": 2},
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.deliverables")
    parser.add_argument("--out", type=Path, help="file that the tables are written to as well")
    parser.add_argument("--quick", action="store_true", help="the smallest size, two rounds")
    parser.add_argument("--grid", action="store_true", help="every architecture, n of 32 to 512")
    parser.add_argument("--cpu", action="store_true", help="it is the CPU that is measured anyway")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rounds = 2 if arguments.quick else GRID_ROUNDS if arguments.grid else 31
    lines = [
        "# Files of trained models",
        "",
        *(f"- {fact}" for fact in (f"{datetime.now():%Y-%m-%d}", *described())),
        f"- onnxruntime {onnxruntime.__version__}, one thread",
        "",
        f"T{STEPS} I{INPUTS}. Speed over the dense model's file: processor time, interleaved, "
        "medians of ratios within rounds, quartiles in brackets. `node`: matrices are made whole "
        "when the file is loaded; `loop`: products go through their factors.",
        "",
        "| model | n | form | bytes, 32 bits | 8 | 4 | B1 node | B1 loop | B64 node | B64 loop | "
        "loading, ms |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    cases = _grid() if arguments.grid else _cases(SIZES[: 1 if arguments.quick else None])
    misses: list[str] = []
    for case in cases:
        line, missed = _row(*case, rounds=rounds)
        lines.append(line)
        misses += missed
        sys.stderr.write(line + "\n")
    if arguments.grid:
        wanted = (
            f"Wanted of the smaller form of 32 bits: at most 4 bytes a number, 6 KiB and "
            f"{_STAGE_BYTES} bytes a stage of rotations, and {_MOST_OVER_DENSE} of the dense file; "
            f"of `node`: {_LEAST_SPEED} of the dense file's speed, in its upper quartile at least."
        )
        lines += ["", wanted, "", *(misses or ["All files are as is wanted."])]
    else:
        lines += ["", "## C files", "", *c_exports.table(quick=arguments.quick)]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


def _forms(size: int) -> dict[str, dict[str, Any]]:
    return {
        "dense": {"kind": "dense"},
        "low rank d=n/8, tied": {"kind": "low_rank", "d": size // 8, "tied": True},
        "householder_svd 8, 8": {"kind": "householder_svd", "m1": 8, "m2": 8, "r": 0.1},
        "rotations 10": {"kind": "packed_rotations", "count": 10},
    }


def _cases(sizes: Sequence[int]) -> Iterator[tuple[str, str, ModelSpec]]:
    for size in sizes:
        for title, form in _forms(size).items():
            yield "gru", title, _spec("gru", form, size)
    if len(sizes) > 1:
        for title, form in _forms(128).items():
            yield "lstm", title, _spec("lstm", form, 128)


def _grid() -> Iterator[tuple[str, str, ModelSpec]]:
    for cell in _CELLS:
        for size in GRID_SIZES:
            others = {
                "low rank plus diagonal d=n/8": {"kind": "low_rank_diagonal", "d": size // 8},
                "householder n/8": {"kind": "householder", "m": size // 8},
                "rotation_svd 5, 5": {"kind": "rotation_svd", "count_u": 5, "count_v": 5},
                "factorized_svd": {"kind": "factorized_svd"},
                "unitary_fft": {"kind": "unitary_fft"},
                "unitary_full": {"kind": "unitary_full"},
            }
            for title, form in {**_forms(size), **others}.items():
                spec = _spec(cell, form, size)
                try:
                    spec.check()
                except SpecError:
                    continue
                yield cell, title, spec


def _spec(cell: str, form: dict[str, Any], size: int) -> ModelSpec:
    return ModelSpec.model_validate(
        {
            "architecture": {"hidden_size": size, **_CELLS[cell]},
            "parametrization": form,
            "signature": {
                "input_size": INPUTS,
                "sequence_length": STEPS,
                "output_size": OUTPUTS,
            },
        }
    )


def _row(cell: str, title: str, spec: ModelSpec, *, rounds: int) -> tuple[str, list[str]]:
    """A line of the table, and what is not as it should be."""
    network = spec.build(seed=0).eval()
    baseline = spec.dense_twin()
    dense = export(baseline.build(seed=0).eval(), baseline)
    forms = forms_of(network)
    files = {form: export(network, spec, FileOptions(form=form)) for form in forms}
    sizes = [min(len(one) for one in _files(spec, bits)) for bits in BITS]
    size = spec.architecture.hidden_size
    misses = _too_large(sizes[0], len(dense), spec)
    speeds: dict[tuple[int, str], str] = {}
    for batch in BATCHES:
        x = example_input(spec.signature, batch=batch, steps=STEPS, generator=generator_of(0))
        calls: dict[str, Callable[[], object]] = {
            name: _call(Session(content), x) for name, content in ({_DENSE: dense} | files).items()
        }
        timings = timed(calls, baseline=_DENSE, rounds=rounds)
        for form in forms:
            one = timings[form]
            values = (1 / ratio for ratio in (one.ratio, one.ratio_high, one.ratio_low))
            speeds[batch, form] = "{:.2f} ({:.2f} to {:.2f})".format(*values)
            if form == "node" and 1 / one.ratio_low < _LEAST_SPEED:
                misses.append(f"speed at B{batch}: {speeds[batch, form]}")
    told = [speeds.get((batch, form), "–") for batch in BATCHES for form in FORMS]
    bytes_ = " | ".join(f"{one:,}" for one in sizes)
    loading = 1000 * _loading(files[forms[0]])
    line = f"| {cell} | {size} | {title} | {bytes_} | {' | '.join(told)} | {loading:.1f} |"
    return line, [f"- {cell} {size}, {title}: {missed}" for missed in misses]


def _too_large(size: int, dense: int, spec: ModelSpec) -> list[str]:
    given = spec.parametrization.model_dump()
    stages = sum(given.get(name, 0) for name in ("count", "count_u", "count_v"))
    most = 4 * spec.parameter_count() + _AROUND_BYTES + _STAGE_BYTES * stages
    most = min(most, round(_MOST_OVER_DENSE * dense))
    return [f"{size:,} bytes, where {most:,} are wanted at most"] if size > most else []


def _files(spec: ModelSpec, bits: int) -> Iterator[bytes]:
    few = spec.model_copy(update={"bits": bits})
    network = few.build(seed=0).eval()
    for form in forms_of(network):
        yield export(network, few, FileOptions(form=form))


def _call(session: Session, x: torch.Tensor) -> Callable[[], object]:
    return lambda: session.run(x)


def _loading(content: bytes) -> float:
    """Seconds of processor time to load a file: the matrices are made then."""
    times: list[float] = []
    for _ in range(_CREATIONS):
        began = time.thread_time()
        Session(content)
        times.append(time.thread_time() - began)
    return statistics.median(times)


if __name__ == "__main__":
    main()
