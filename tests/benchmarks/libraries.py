"""`python -m tests.benchmarks.libraries`: the libraries of a wheel against one built here.

What it costs to bring libraries for kinds of processors instead of building for the processor
itself, with which they are timed in turn. `--out FILE` writes the table too.
"""

import argparse
import ctypes
import itertools
import platform
import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from models.architectures import Gru, Lstm, Mlp, Rnn
from models.kernels import calls
from models.kernels.compiling import digest_of_sources
from models.kernels.library import instructions, load
from models.kernels.prebuilt import TARGETS, build_all
from models.model import ModelSpec
from models.parametrizations import Dense, HouseholderSvd, LowRank, PackedRotations
from models.spec import Signature
from tests.benchmarks.cpu.cases import BOTH, Mode
from tests.benchmarks.cpu.contestant import step_of_spec
from tests.benchmarks.cpu.machine import described
from tests.benchmarks.cpu.timing import Timing, timed

_NATIVE = "native"
_STEPS = 40
_SPECS: Mapping[str, tuple[Any, Any]] = {
    "spectral RNN n32": (Rnn(hidden_size=32), HouseholderSvd(m1=8, m2=8)),
    "spectral RNN n128": (Rnn(hidden_size=128), HouseholderSvd(m1=16, m2=16)),
    "rotations RNN n256": (Rnn(hidden_size=256), PackedRotations(count=10)),
    "low-rank GRU n256": (Gru(hidden_size=256), LowRank(d=16)),
    "dense GRU n128": (Gru(hidden_size=128), Dense()),
    "low-rank LSTM n256": (Lstm(hidden_size=256), LowRank(d=16)),
    "dense MLP n128": (Mlp(hidden_size=128, layers=4), Dense()),
}
_BATCHES = (1, 64)


def main() -> None:
    """Build, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.libraries")
    parser.add_argument("--out", type=Path, help="file that the table is written to as well")
    parser.add_argument("--quick", action="store_true", help="one model, two rounds")
    parser.add_argument("--cpu", action="store_true", help="it is the CPU that is measured anyway")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        libraries = _libraries(Path(folder))
        text = "\n".join(_report(libraries, quick=arguments.quick)) + "\n"
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


def _libraries(folder: Path) -> dict[str, ctypes.CDLL]:
    """One built for this processor, and each of a wheel's that it runs."""
    build_all(folder, every=False)
    found = {_NATIVE: load(folder)}
    for target in TARGETS:
        if target.machine == platform.machine() and target.needs <= instructions():
            path = folder / target.file_name(digest_of_sources())
            found[target.name] = ctypes.CDLL(str(path))
    return found


def _report(libraries: Mapping[str, ctypes.CDLL], *, quick: bool) -> list[str]:
    brought = [name for name in libraries if name != _NATIVE]
    lines = [
        "# The libraries of a wheel against one built for the processor",
        "",
        *(f"- {fact}" for fact in (f"{datetime.now():%Y-%m-%d}", *described())),
        "",
        f"Time with a wheel's library over that with one built by `-march=native`, T{_STEPS} I1, "
        "one thread, interleaved, medians of ratios within rounds with their quartiles.",
        "",
        "| | " + " | ".join(brought) + " |",
        "|---|" + "---:|" * len(brought),
    ]
    names = list(_SPECS)[: 1 if quick else None]
    for name, mode, batch in itertools.product(names, BOTH, _BATCHES):
        runs = {one: _run(name, batch, mode, library) for one, library in libraries.items()}
        timings = timed(runs, baseline=_NATIVE, rounds=2 if quick else 15)
        ratios = " | ".join(_with_spread(timings[one]) for one in brought)
        lines.append(f"| {name}, {mode} B{batch} | {ratios} |")
    return lines


def _with_spread(timing: Timing) -> str:
    return f"{timing.ratio:.2f} [{timing.ratio_low:.2f}, {timing.ratio_high:.2f}]"


def _run(name: str, batch: int, mode: Mode, library: ctypes.CDLL) -> Callable[[], object]:
    architecture, parametrization = _SPECS[name]
    steps = 1 if isinstance(architecture, Mlp) else _STEPS
    signature = Signature(input_size=1, sequence_length=steps, output_size=10)
    spec = ModelSpec(
        architecture=architecture, parametrization=parametrization, signature=signature
    )
    step = step_of_spec(spec, batch, mode)

    def call() -> object:
        with mock.patch.object(calls, "library", return_value=library):
            return step()

    return call


if __name__ == "__main__":
    main()
