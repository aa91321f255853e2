"""`python -m tests.benchmarks.asks`: seconds that a sampler computes for one suggestion.

Asks each sampler for another suggestion of a study that has so many trials, in memory. All are
complete; with a sampler that decides how far trials train a fourth is, the newest of the others are
paused and the rest was stopped, each at a rung, and its decisions stand in a row of their own.
Seconds are the processor's, so that other work on the machine counts little. Where a sampler takes
one candidate alone, the study has that one.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import optuna

from search.samplers import Past, Question
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
    "freeze_thaw": {"kind": "freeze_thaw"},
    "gp": {"kind": "gp"},
    "branches": {"kind": "branches"},
    "branches (gp)": {"kind": "branches", "sampler": {"kind": "gp"}},
}
_FLAT: Mapping[str, Any] = {"architectures": ["rnn"], "parametrizations": ["low_rank"]}
_PAUSED = 100
_NOW = datetime(2026, 1, 1, tzinfo=UTC)


def seconds_per_ask(sampler: Mapping[str, Any], trials: int, *, asks: int) -> Sequence[float]:
    """Of so many asks in a row, none of which is told how it ended."""
    spec, space, past = _study(sampler, trials)
    context = sampler_context_of(spec, space, lambda: past)
    optuna_study = OptunaStudy(_STUDY, spec, context, past.trials)

    def ask() -> None:
        space.draw(TrialSource(optuna_study.ask()))

    return [_seconds(ask) for _ in range(asks)]


def seconds_per_decision(
    sampler: Mapping[str, Any], trials: int, *, decisions: int
) -> Sequence[float]:
    """Of rankings of all that is paused; empty for a sampler that makes none."""
    spec, space, past = _study(sampler, trials)
    if not spec.sampler.rungs(spec.budget.epochs):
        return []
    context = sampler_context_of(spec, space, lambda: past)

    def decide(number: int) -> None:
        ready = frozenset(range(trials))
        question = Question(decision=number, epochs_left=None, slots=1, ready=ready)
        spec.sampler.rank(context, question)

    return [_seconds(partial(decide, number)) for number in range(decisions)]


def _seconds(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _study(sampler: Mapping[str, Any], trials: int) -> tuple[StudySpec, SearchSpace, Past]:
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
    rungs = spec.sampler.rungs(spec.budget.epochs)
    past, validations = list[TrialRecord](), dict[int, dict[int, float]]()
    for number in range(trials):
        record = _record(number, space.draw(RandomSource(generator)), generator)
        quality = record.quality or 0.0
        if rungs and number % 4:
            is_paused = number >= trials - _PAUSED
            record = replace(
                record,
                state=TrialState.PAUSED if is_paused else TrialState.STOPPED,
                quality=None,
                epochs_trained=rungs[number % len(rungs)],
                finished_at=None if is_paused else _NOW,
                told_at=None if is_paused else _NOW,
            )
        past.append(record)
        if rungs:
            epochs = range(1, record.epochs_trained + 1)
            validations[number] = {epoch: 1 - (1 - quality) ** (epoch / 9) for epoch in epochs}
    return spec, space, Past(trials=past, validations=validations, validation_samples=300)


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
        cells = [
            f"{statistics.median(found):.3f}"
            for trials in options.trials
            if (found := seconds_per_decision(SAMPLERS[name], trials, decisions=options.asks))
        ]
        if cells:
            write(f"| {name}: a decision | {' | '.join(cells)} |\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
