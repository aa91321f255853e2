"""One case in a process of its own, told and answering in JSON.

`python -m tests.benchmarks.cpu.worker CASE MODE ROUNDS`, with the environment that
`tests.benchmarks.sequences` sets before torch is imported.
"""

import json
import sys
from dataclasses import asdict
from typing import Any

import torch

from tests.benchmarks.cpu import deep, peers
from tests.benchmarks.cpu.cases import BY_NAME, DEEP, Case, Mode
from tests.benchmarks.cpu.checks import errors, reference, spectrum_error
from tests.benchmarks.cpu.contestant import OURS, TORCH, Factories, data_of
from tests.benchmarks.cpu.floor import activations, flops, least_ms
from tests.benchmarks.cpu.machine import measured_peak
from tests.benchmarks.cpu.timing import is_noisy, timed


def factories(case: Case, mode: Mode) -> Factories:
    """Who takes part."""
    return (deep if case in DEEP else peers).contestants(case, mode)


def measured(case: Case, mode: Mode, *, rounds: int) -> dict[str, Any]:
    """Times, ratios, errors and the floor of a case, for `report`."""
    contestants = {name: make() for name, make in factories(case, mode).items()}
    expected = reference(case, data_of(case), mode)
    found = {name: errors(each, expected, mode) for name, each in contestants.items()}
    del expected
    timings = timed(
        {name: each.run for name, each in contestants.items()},
        baseline=TORCH,
        rounds=rounds,
        fewer={name: min(rounds, each.rounds) for name, each in contestants.items() if each.rounds},
    )
    peak = measured_peak()
    floor_ms = least_ms(case, mode, peak) if peak else None
    return {
        "case": case.name,
        "mode": mode,
        "shape": f"T{case.steps} B{case.batch} I{case.inputs}",
        "note": case.note,
        "noisy": is_noisy(timings[TORCH]),
        "spectrum_error": spectrum_error(case.spec.build(seed=0)) if mode == "train" else None,
        "gflop": flops(case, mode) / 1e9,
        "million_tanhs": activations(case) / 1e6,
        "peak": peak.gflops if peak else None,
        "floor_ms": floor_ms,
        "reached": floor_ms / timings[OURS].median_ms if floor_ms else None,
        "rows": [
            {
                "name": name,
                "backend": contestants[name].backend,
                **asdict(timing),
                "errors": asdict(own) if (own := found[name]) else None,
                "tolerable": own.tolerable if own else None,
            }
            for name, timing in timings.items()
        ],
    }


def main() -> None:
    """Measure what the arguments name."""
    name, mode, rounds = sys.argv[1:]
    assert mode == "train" or mode == "infer"
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(measured(BY_NAME[name], mode, rounds=int(rounds))))


if __name__ == "__main__":
    main()
