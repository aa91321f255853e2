"""`python -m tests.c_check`: all variants under all compilers, and on an emulated Cortex-M4.

Of every model of the conformance suites: gcc and clang at -O0, -O2, -Os, -O3 and with sanitizers
take the file without a warning and give equal bits, within the bound of the model; a Cortex-M4
gives them, too. Then what files take on a device. `--quick` takes one model of each pair.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from models.architectures import Architecture
from models.exports.c.export import export
from models.exports.c.toolchain import flash_bytes
from models.exports.c.verify import answers, build, raw_samples
from models.model import ModelSpec
from models.parametrizations import Family
from tests.c_check import arm
from tests.c_check.builds import Build, builds, check, missing, same_bits
from tests.conformance.model_specs import EVERY, LAST, pair_name, pairs, specs, trained

BITS = (32, 8, 4)
FORMS = {
    "dense": {"kind": "dense"},
    "low rank d=8, tied": {"kind": "low_rank", "d": 8, "tied": True},
    "low rank plus diagonal d=4": {"kind": "low_rank_diagonal", "d": 4},
    "householder_svd 4, 4": {"kind": "householder_svd", "m1": 4, "m2": 4, "r": 0.2},
    "rotations 10": {"kind": "packed_rotations", "count": 10},
}


def main() -> None:
    """Check everything and print what files take."""
    parser = argparse.ArgumentParser(prog="python -m tests.c_check")
    parser.add_argument("--quick", action="store_true", help="one model of each pair")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tried = builds()
    lacking = [f"{one.compiler} {' '.join(one.flags)}" for one in missing()] + arm.missing()
    if not any(one.compiler == "gcc" for one in tried):
        sys.exit("gcc is not here; on Debian: apt-get install gcc")
    if lacking:
        _say(f"Not here, and left out: {'; '.join(lacking)}.")
    failures: list[str] = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for pair, failed in zip(
            pairs(),
            pool.map(lambda pair: _failures(pair, tried, quick=arguments.quick), pairs()),
            strict=True,
        ):
            _say(f"{pair_name(pair)}: {'as it should be' if not failed else 'WRONG'}")
            failures += failed
    _say("\n".join(table()))
    if failures:
        sys.exit("\n".join(failures))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def variants(pair: tuple[type[Architecture], type[Family]]) -> Iterator[ModelSpec]:
    """Every model of a pair, with answers after the last step and after every one."""
    yield from itertools.chain(specs(*pair, LAST), specs(*pair, EVERY))


def on_arm(spec: ModelSpec) -> None:
    """Raise where the emulated Cortex-M4 gives other bits than this machine."""
    file = export(trained(spec), spec)
    raw = next(raw_samples(spec, None))[:2]
    steps = raw.shape[1]
    with TemporaryDirectory() as folder:
        program = build(file, spec, Path(folder), by="gcc")
        here = answers([str(program)], spec, raw, steps=steps)
    there = arm.answered(file, spec, raw, steps=steps)
    assert same_bits(here, there), f"other bits on a Cortex-M4: {spec}"


def _failures(
    pair: tuple[type[Architecture], type[Family]], tried: list[Build], *, quick: bool
) -> list[str]:
    found: list[str] = []
    chosen = itertools.islice(variants(pair), 1 if quick else None)
    for (index, one), bits in itertools.product(enumerate(chosen), BITS):
        spec = one.model_copy(update={"bits": bits})
        try:
            check(spec, tried)
            if index == 0 and not arm.missing():
                on_arm(spec)
        except Exception as error:  # every one is told at the end
            found.append(f"{pair_name(pair)}: {error}")
    return found


def table() -> Iterator[str]:
    """Flash, state and instructions of a GRU of 64 units that reads 8 numbers."""
    emulates = not arm.missing()
    yield ""
    yield "GRU n=64, 8 inputs, reset after, 10 outputs. Flash: code and tables at -Os."
    yield ""
    yield (
        "| form | bits | flash, this machine | flash, Cortex-M4 | state | "
        "instructions a step, Cortex-M4 -O2 |"
    )
    yield "|---|---:|---:|---:|---:|---:|"
    for (title, form), bits in itertools.product(FORMS.items(), BITS):
        spec = ModelSpec.model_validate(
            {
                "architecture": {"kind": "gru", "hidden_size": 64, "reset": "after"},
                "parametrization": form,
                "signature": {"input_size": 8, "sequence_length": 8, "output_size": 10},
                "bits": bits,
            }
        )
        file = export(trained(spec), spec)
        there = f"{arm.flash(file):,} | " if emulates else "- | "
        count = f"{arm.instructions(file, spec):,}" if emulates else "-"
        here = flash_bytes(file, by="gcc")
        yield f"| {title} | {bits} | {here:,} | {there}{file.state_bytes:,} | {count} |"


if __name__ == "__main__":
    main()
