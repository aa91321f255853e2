"""`python -m tests.benchmarks.fourier`: where Fourier transforms beat a unitary matrix as a whole.

The numbers behind `models.forms.fourier.fourier_form_pays`: a whole uRNN layer, making the form
included, with both forms in turn. `--out FILE` writes the tables too.
"""

import argparse
import itertools
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal
from unittest import mock

import torch
from torch import Tensor

from models.architectures import Urnn
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import UnitaryFft, unitary_fft
from models.spec import Signature
from tests.benchmarks.cpu.machine import described
from tests.benchmarks.cpu.timing import timed

Mode = Literal["train", "infer"]

SIZES = (64, 128, 181, 256, 300, 512, 721)
_BATCHES = (1, 20, 64)
_MODES: tuple[Mode, ...] = ("train", "infer")
_STEPS = 20
_DENSE, _FOURIER = "dense", "fourier"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.fourier")
    parser.add_argument("--out", type=Path, help="file that the tables are written to as well")
    parser.add_argument("--quick", action="store_true", help="two sizes, two rounds")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sizes = SIZES[:2] if arguments.quick else SIZES
    rounds = 2 if arguments.quick else 7
    lines = [
        "# Fourier transforms against a unitary matrix as a whole",
        "",
        *(f"- {fact}" for fact in (f"{datetime.now():%Y-%m-%d}", *described())),
        "",
        f"Time of a uRNN layer by transforms over that by the real form of its matrix, T{_STEPS} "
        "I1, one thread, interleaved, medians of ratios within rounds; making the form is part of "
        "it.",
        "",
        "| n | "
        + " | ".join(f"{mode} B{b}" for mode in ("train", "infer") for b in _BATCHES)
        + " |",
        "|---:|" + "---:|" * 2 * len(_BATCHES),
    ]
    for size in sizes:
        ratios = [
            timed(
                {pays: _run(size, batch, mode, pays=pays) for pays in (_DENSE, _FOURIER)},
                baseline=_DENSE,
                rounds=rounds,
            )[_FOURIER].ratio
            for mode, batch in itertools.product(_MODES, _BATCHES)
        ]
        lines.append(f"| {size} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |")
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


def _run(size: int, batch: int, mode: Mode, *, pays: str) -> Callable[[], object]:
    network = _network(size)
    x = torch.randn(batch, _STEPS, 1, generator=torch.Generator().manual_seed(0))
    parameters = list(network.parameters())

    def call() -> object:
        by_transforms = pays == _FOURIER
        with mock.patch.object(unitary_fft, "fourier_form_pays", return_value=by_transforms):
            if mode == "infer":
                with torch.no_grad():
                    return network(x)
            answer: Tensor = network(x)
            return torch.autograd.grad(answer.sum(), parameters)

    return call


def _network(size: int) -> Network:
    signature = Signature(input_size=1, sequence_length=_STEPS, output_size=10)
    architecture = Urnn(hidden_size=size)
    spec = ModelSpec(architecture=architecture, parametrization=UnitaryFft(), signature=signature)
    return spec.build(seed=0)


if __name__ == "__main__":
    main()
