"""`python -m tests.benchmarks.asks`: seconds that a sampler computes for one suggestion.

Asks each sampler for another suggestion of a study that has so many complete trials, in memory.
Seconds are the processor's, so that other work on the machine counts little. Where a sampler takes
one candidate alone, the study has that one.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import optuna

from search.samplers import Past
from search.samplers.modelling.configurations_drawn import RandomSource
from search.sampling.optuna_study import OptunaStudy
from search.sampling.sampler_context import sampler_context_of
from search.spaces.draws import TrialSource
from search.spaces.model_space import DrawnTrial
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from storage.records import StudyRecord, StudyState, TrialOrigin, TrialRecord, TrialState

SAMPLERS: Mapping[str, Mapping[str, Any]] = {
    "tpe": {"kind": "tpe"},
    "nsga2": {"kind": "nsga2"},
    "nsga3": {"kind": "nsga3"},
    "known_cost": {"kind": "known_cost"},
    "gp": {"kind": "gp"},
    "branches": {"kind": "branches"},
    "branches (gp)": {"kind": "branches", "sampler": {"kind": "gp"}},
}
_FLAT: Mapping[str, Any] = {"architectures": ["rnn"], "parametrizations": ["low_rank"]}
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def seconds_per_ask(sampler: Mapping[str, Any], trials: int, *, asks: int) -> Sequence[float]:
    """Of so many asks in a row, none of which is told how it ended."""
    flat = _FLAT if sampler["kind"] == "gp" else {}
    document = {
        "task": {"kind": "digits"},
        "sampler": sampler,
        "budget": {"trials": trials},
        "seed": 1,
        **flat,
    }
    # More trials than a sampler allows are shown too: a user may well try them.
    spec = StudySpec.model_validate(document)
    space = SearchSpace(spec.model_copy(update={"sampler": StudySpec(task=spec.task).sampler}))
    generator = np.random.default_rng(0)
    past = [_record(n, space.draw(RandomSource(generator)), generator) for n in range(trials)]
    now = Past(trials=past, validations={}, validation_samples=300)
    optuna_study = OptunaStudy(_STUDY, spec, sampler_context_of(spec, space, lambda: now), past)
    found: list[float] = []
    for _ in range(asks):
        began = time.process_time()
        space.draw(TrialSource(optuna_study.ask()))
        found.append(time.process_time() - began)
    return found


_STUDY = StudyRecord(
    id="s",
    name="asked",
    state=StudyState.RUNNING,
    spec={},
    created_at=_NOW,
    started_at=_NOW,
)


def _record(number: int, drawn: DrawnTrial, generator: np.random.Generator) -> TrialRecord:
    model = drawn.spec.model
    count = model.parameter_count()
    error = min(0.9, 3 / count**0.5) * float(np.exp(0.2 * generator.standard_normal()))
    return TrialRecord(
        study_id="s",
        number=number,
        state=TrialState.COMPLETE,
        architecture=drawn.candidate.architecture,
        parametrization=drawn.candidate.parametrization,
        hyperparameters=dict(drawn.hyperparameters),
        drawn=dict(drawn.drawn),
        spec=drawn.spec.model_dump(mode="json"),
        parameters=count,
        dense_parameters=model.dense_twin().parameter_count(),
        shape_key=str(number),
        quality=1 - error,
        origin=TrialOrigin.SAMPLER,
        epochs_trained=9,
        throughput=1e6 / count,
        throughput_ratio=1.0,
        dispatched=True,
        created_at=_NOW,
        started_at=_NOW,
        finished_at=_NOW,
        told_at=_NOW,
    )


def main(arguments: Sequence[str]) -> int:
    """Ask and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.asks")
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=list(SAMPLERS))
    parser.add_argument("--trials", nargs="+", type=int, default=[50, 200, 500])
    parser.add_argument("--asks", type=int, default=3)
    options = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    write = sys.stdout.write
    write(f"| sampler | {' | '.join(f'{n} trials' for n in options.trials)} |\n")
    write(f"|---|{'---:|' * len(options.trials)}\n")
    for name in options.samplers:
        cells: list[str] = []
        for trials in options.trials:
            found = seconds_per_ask(SAMPLERS[name], trials, asks=options.asks)
            cells.append(f"{statistics.median(found):.3f}")
        write(f"| {name} | {' | '.join(cells)} |\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
