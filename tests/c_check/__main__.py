"""`python -m tests.c_check`: all variants under all compilers, and on an emulated Cortex-M4.

Of every model of the conformance suites, at 32 bits and at 8 or 4: gcc's or clang's sanitizers, and
both compilers at -O0, -O2, -Os or -O3, take the file without a warning and give equal bits, within
the bound of the model. Every architecture with every parametrization and bits has all of these, see
`tests.c_check.jobs`, and a Cortex-M4. Then what files take on a device. `--quick` takes one model
of each pair; `-j N` as many at a time, else as many as there are processors.
"""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from models.exports.c.export import export
from models.exports.c.toolchain import flash_bytes
from models.exports.c.verify import answers, build, raw_samples
from models.model import ModelSpec
from tests.c_check import arm
from tests.c_check.builds import PACKAGES, builds, check, missing, same_bits
from tests.c_check.jobs import BITS, Job, jobs
from tests.conformance.model_specs import pair_name, pairs, trained

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
    parser.add_argument("-j", type=int, default=os.cpu_count(), help="models at a time")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tried = builds()
    lacking = [str(one) for one in missing()] + arm.missing()
    if not any(one.compiler == "gcc" for one in tried):
        sys.exit("gcc is not here; on Debian: apt-get install gcc libc6-dev")
    if lacking:
        _say(f"Not here, and left out: {'; '.join(lacking)}. {PACKAGES}")
    failures: list[str] = []
    began = time.monotonic()
    with ThreadPoolExecutor(arguments.j) as pool:
        found = {
            pair: [pool.submit(run, job) for job in jobs(pair, tried, quick=arguments.quick)]
            for pair in pairs()
        }
        for pair, results in found.items():
            wrong = [f"{pair_name(pair)}: {said}" for one in results if (said := one.result())]
            told = "WRONG" if wrong else "as it should be"
            seconds = time.monotonic() - began
            _say(f"{pair_name(pair)}: {len(results)} models, {told} ({seconds:.0f} s)")
            failures += wrong
    _say("\n".join(table()))
    if failures:
        sys.exit("\n".join(failures))


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run(job: Job) -> str | None:
    """What is wrong with a model."""
    try:
        check(job.spec, job.builds)
        if job.on_arm and not arm.missing():
            on_arm(job.spec)
    except Exception as error:  # every one is told at the end
        return f"{error}"
    return None


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
