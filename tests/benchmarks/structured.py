"""`python -m tests.benchmarks.structured`: where structured matrices beat whole ones.

The numbers behind `models.forms.fourier_form_pays` and `models.forms.rotated_form_pays`: a whole
layer, making its matrices included, with both forms in turn. `--out FILE` writes the tables too.
"""

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from unittest import mock

import torch

from models.architectures import Rnn, Urnn
from models.forms import fourier_form_pays, rotated_form_pays
from models.kernels.unitary import transforms
from models.model import ModelSpec
from models.parametrizations import (
    PackedRotations,
    RotationSvd,
    UnitaryFft,
    packed_rotations,
    rotation_svd,
    unitary_fft,
)
from models.spec import Signature
from tests.benchmarks.cpu.cases import BOTH, Mode
from tests.benchmarks.cpu.contestant import step_of_spec
from tests.benchmarks.cpu.machine import described
from tests.benchmarks.cpu.timing import timed

_BATCHES = (1, 20, 64)
_STEPS = 40
_STAGES = (1, 5, 10, 40)
_WHOLE, _STRUCTURED = "whole", "structured"


@dataclass(frozen=True)
class Case:
    """A layer, and where its module asks which form pays."""

    name: str
    spec: ModelSpec
    rule: tuple[object, str]
    chosen: bool
    """What the rule answers here."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.structured")
    parser.add_argument("--out", type=Path, help="file that the tables are written to as well")
    parser.add_argument("--quick", action="store_true", help="the smallest sizes, two rounds")
    parser.add_argument("--cpu", action="store_true", help="it is the CPU that is measured anyway")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    quick = arguments.quick
    lines = [
        "# Structured matrices against whole ones",
        "",
        *(f"- {fact}" for fact in (f"{datetime.now():%Y-%m-%d}", *described())),
        "",
        "Time of a layer whose matrix is applied factor by factor over that of the same layer with "
        f"the matrix as a whole, T{_STEPS} I1, one thread, interleaved, medians of ratios within "
        "rounds; making the matrix is part of it. `*`: what runs here is the structured form.",
    ]
    for title, cases in (
        (
            "Unitary by Fourier transforms: a uRNN",
            _unitary((16, 64, 128, 181, 256, 300, 509, 512, 721, 1024)),
        ),
        ("Packed rotations: a spectral RNN", _rotations((32, 64, 100, 128, 256, 512, 1024))),
        ("U diag(s) V^T of packed rotations", _svd((64, 128, 256, 512, 1024))),
    ):
        lines += ["", f"## {title}", "", *_table(list(cases)[: 1 if quick else None], quick=quick)]
    text = "\n".join(lines) + "\n"
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


def _unitary(sizes: Sequence[int]) -> Iterator[Case]:
    for size in sizes:
        spec = _spec(Urnn(hidden_size=size), UnitaryFft())
        rule = unitary_fft, "fourier_form_pays"
        yield Case(f"n {size}", spec, rule, fourier_form_pays(size, by_kernel=transforms(size)))


def _rotations(sizes: Sequence[int]) -> Iterator[Case]:
    for size, stages in itertools.product(sizes, _STAGES):
        if stages < size / 4:
            spec = _spec(Rnn(hidden_size=size), PackedRotations(count=stages))
            rule = packed_rotations, "rotated_form_pays"
            name = f"n {size}, {stages} stages"
            yield Case(name, spec, rule, rotated_form_pays(stages, size))


def _svd(sizes: Sequence[int]) -> Iterator[Case]:
    for size in sizes:
        spec = _spec(Rnn(hidden_size=size), RotationSvd(count_u=5, count_v=5))
        rule = rotation_svd, "rotated_form_pays"
        yield Case(f"n {size}, 5 + 5 stages", spec, rule, rotated_form_pays(10, size))


def _spec(
    architecture: Rnn | Urnn, parametrization: PackedRotations | RotationSvd | UnitaryFft
) -> ModelSpec:
    signature = Signature(input_size=1, sequence_length=_STEPS, output_size=10)
    return ModelSpec(
        architecture=architecture, parametrization=parametrization, signature=signature
    )


def _table(cases: Sequence[Case], *, quick: bool) -> Iterator[str]:
    columns = list(itertools.product(BOTH, _BATCHES))
    yield "| | " + " | ".join(f"{mode} B{batch}" for mode, batch in columns) + " |"
    yield "|---|" + "---:|" * len(columns)
    for case in cases:
        ratios = [
            timed(
                {form: _run(case, batch, mode, form) for form in (_WHOLE, _STRUCTURED)},
                baseline=_WHOLE,
                rounds=2 if quick else 9,
            )[_STRUCTURED].ratio
            for mode, batch in columns
        ]
        mark = " *" if case.chosen else ""
        yield f"| {case.name}{mark} | " + " | ".join(f"{ratio:.2f}" for ratio in ratios) + " |"


def _run(case: Case, batch: int, mode: Mode, form: str) -> Callable[[], object]:
    step = step_of_spec(case.spec, batch, mode)
    module, name = case.rule

    def call() -> object:
        with mock.patch.object(module, name, return_value=form == _STRUCTURED):
            return step()

    return call


if __name__ == "__main__":
    main()
