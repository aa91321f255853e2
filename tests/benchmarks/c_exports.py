"""`python -m tests.benchmarks.c_exports`: C files beside onnxruntime's of the dense model.

A GRU, one sample at a time: how often as fast as onnxruntime with the dense model's file a C file
is, and what it takes. `--quick` takes the smallest size and two rounds; `--out FILE` writes the
table too.
"""

import argparse
import ctypes
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnxruntime
import torch
from torch import Tensor

from models.exports.c.export import CFile, export
from models.exports.c.toolchain import STRICT, compiler, flash_bytes, run, write
from models.exports.onnx.export import export as export_onnx
from models.model import ModelSpec
from tests.benchmarks.cpu.machine import described
from tests.benchmarks.cpu.timing import timed

SIZES = (64, 128, 256)
STEPS, INPUTS, OUTPUTS = 28, 28, 10
FLAGS = ("-O3", "-march=native", "-fno-trapping-math")
_DENSE = "onnxruntime"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.c_exports")
    parser.add_argument("--out", type=Path, help="file that the table is written to as well")
    parser.add_argument("--quick", action="store_true", help="the smallest size, two rounds")
    parser.add_argument("--cpu", action="store_true", help="it is the CPU that is measured anyway")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    lines = [
        "# C files",
        "",
        *(f"- {fact}" for fact in (f"{datetime.now():%Y-%m-%d}", *described())),
        "",
        *table(quick=arguments.quick),
    ]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


def table(*, quick: bool) -> list[str]:
    """The lines of the table and what stands above it."""
    return [
        f"GRU, reset after, T{STEPS} I{INPUTS}, one sample, one thread: speed over onnxruntime "
        f"{onnxruntime.__version__} with the dense model's file, processor time, interleaved, "
        f"medians of ratios within rounds, quartiles in brackets; {' '.join(FLAGS)}. Flash: code "
        "and tables at -Os on this machine.",
        "",
        "| n | form | bits | speed over onnxruntime, dense | flash | state |",
        "|---:|---|---:|---:|---:|---:|",
        *_rows(SIZES[:1] if quick else SIZES, 2 if quick else 101),
    ]


def forms(size: int) -> dict[str, dict[str, Any]]:
    """By what they are called."""
    return {
        "dense": {"kind": "dense"},
        "low rank d=n/8, tied": {"kind": "low_rank", "d": size // 8, "tied": True},
        "low rank d=n/8": {"kind": "low_rank", "d": size // 8},
        "low rank plus diagonal d=n/16": {"kind": "low_rank_diagonal", "d": size // 16},
        "householder_svd 8, 8": {"kind": "householder_svd", "m1": 8, "m2": 8, "r": 0.2},
        "rotations 10": {"kind": "packed_rotations", "count": 10},
    }


def spec_of(size: int, form: dict[str, Any], bits: int = 32) -> ModelSpec:
    """The model with matrices of a form."""
    return ModelSpec.model_validate(
        {
            "architecture": {"kind": "gru", "hidden_size": size, "reset": "after"},
            "parametrization": form,
            "signature": {
                "input_size": INPUTS,
                "sequence_length": STEPS,
                "output_size": OUTPUTS,
            },
            "bits": bits,
        }
    )


def _rows(sizes: tuple[int, ...], rounds: int) -> Iterator[str]:
    x = torch.randn(1, STEPS, INPUTS, generator=torch.Generator().manual_seed(0))
    for size in sizes:
        with TemporaryDirectory() as folder:
            files: dict[str, CFile] = {}
            calls: dict[str, Callable[[], object]] = {
                _DENSE: _onnx(spec_of(size, forms(size)["dense"]), x)
            }
            for title, form in forms(size).items():
                for bits in (32, 8, 4):
                    name, spec = f"{title} | {bits}", spec_of(size, form, bits)
                    file = export(spec.build(seed=0).eval(), spec, name=f"m{len(files)}")
                    files[name] = file
                    calls[name] = _call(file, Path(folder), x)
            timings = timed(calls, baseline=_DENSE, rounds=rounds)
            for name, file in files.items():
                one = timings[name]
                speeds = (1 / ratio for ratio in (one.ratio, one.ratio_high, one.ratio_low))
                yield (
                    f"| {size} | {name} | {'{:.2f} ({:.2f} to {:.2f})'.format(*speeds)} | "
                    f"{flash_bytes(file):,} | {file.state_bytes:,} |"
                )


def _onnx(spec: ModelSpec, x: Tensor) -> Callable[[], object]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    content = export_onnx(spec.build(seed=0).eval(), spec)
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    given = {"input": x.numpy()}
    return lambda: session.run(None, given)


def _call(file: CFile, folder: Path, x: Tensor) -> Callable[[], object]:
    """A whole sequence and its answer."""
    write(file, folder)
    target = folder / f"{file.name}.so"
    shared = ["-shared", "-fPIC", f"{file.name}.c", "-o", str(target)]
    run([compiler(), *STRICT, *FLAGS, *shared], folder)
    library = ctypes.CDLL(str(target))
    reset, go, answer = (
        getattr(library, f"{file.name}_{call}") for call in ("reset", "run", "answer")
    )
    state = (ctypes.c_float * (file.state_bytes // 4))()
    numbers = x.contiguous()
    given, found = ctypes.c_void_p(numbers.data_ptr()), (ctypes.c_float * OUTPUTS)()

    def call() -> Tensor:
        reset(state)
        go(state, given, STEPS)
        answer(state, found)
        return numbers  # kept as long as its memory is read

    return call


if __name__ == "__main__":
    main()
