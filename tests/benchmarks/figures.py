"""`python -m tests.benchmarks.figures`: what it costs to know how a large study stands.

Studies of many complete trials are written straight into the tables. Each figure is asked for as
the pages and the progress of a study ask for it: when something has just changed, and when nothing
has.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from sqlalchemy.orm import Session

from search.fronts.figures import Figures
from search.fronts.study_progress import progress
from search.samplers.modelling.configurations_drawn import RandomSource
from search.spaces.space import SearchSpace
from search.studies import submission
from search.studies.spec import StudySpec
from search.tasks import DataSources
from storage.engine import Database
from storage.records import StudyRecord, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.storage.records import trial

SIZES = (1000, 5000)
REPETITIONS = 5

Ask = Callable[[Session, StudyRecord, Figures], object]

FIGURES: dict[str, Ask] = {
    "standing (progress, events)": lambda session, study, kept: kept.standing(session, study),
    "front": lambda session, study, kept: kept.front(session, study),
    "importance": lambda session, study, kept: kept.importance(session, study),
    "the study's document": lambda session, study, kept: progress(session, study, kept),
}


def fill(database: Database, folder: Path, count: int) -> str:
    """A study on rows of digits with so many complete trials of made-up results."""
    spec = StudySpec.model_validate({"task": {"kind": "digits"}, "budget": {"trials": count}})
    study = submission.submit(database, spec, sources=DataSources(cache=folder, folder=None))
    space, generator = SearchSpace(spec), np.random.default_rng(count)
    with database.write() as session:
        Studies(session).set_reference_point(
            study.id, {"quality": 0.1, "parameters": 1e6, "throughput": 1.0}
        )
        for number in range(count):
            drawn = space.draw(RandomSource(generator))
            parameters = drawn.spec.model.parameter_count()
            record = trial(
                study.id,
                number,
                state=TrialState.COMPLETE,
                hyperparameters=dict(drawn.hyperparameters),
                drawn=dict(drawn.drawn),
                spec=drawn.spec.model_dump(mode="json"),
                parameters=parameters,
                quality=float(1 - 1 / np.log10(parameters) + generator.normal(0, 0.02)),
                throughput=float(1e9 / parameters * generator.uniform(0.7, 1.3)),
                finished_at=datetime.now(UTC),
                told_at=datetime.now(UTC),
            )
            Trials(session).add(record)
    return study.id


def seconds(database: Database, study_id: str, ask: Ask, kept: Figures | None) -> Sequence[float]:
    """How long asking takes, with what is kept or with nothing."""
    taken: list[float] = []
    for _ in range(REPETITIONS):
        begun = time.perf_counter()
        with database.read() as session:
            ask(session, Studies(session).get(study_id), kept or Figures())
        taken.append(time.perf_counter() - begun)
    return taken


def main() -> None:
    """Print the table."""
    write = sys.stdout.write
    write(f"{datetime.now():%Y-%m-%d} · SQLite · medians of {REPETITIONS}, in milliseconds\n\n")
    write(f"{'':8}{'':32}{'changed':>10}{'unchanged':>12}{'ratio':>8}\n")
    with tempfile.TemporaryDirectory() as name:
        database = Database(f"sqlite:///{Path(name) / 'reflectory.db'}")
        database.migrate()
        for count in SIZES:
            study_id, kept = fill(database, Path(name), count), Figures()
            for what, ask in FIGURES.items():
                # The first one imports.
                seconds(database, study_id, ask, kept)
                fresh = 1000 * statistics.median(seconds(database, study_id, ask, None))
                known = 1000 * statistics.median(seconds(database, study_id, ask, kept))
                write(f"{count:<8}{what:32}{fresh:>10.1f}{known:>12.2f}{fresh / known:>8.0f}\n")
        database.dispose()


if __name__ == "__main__":
    main()
