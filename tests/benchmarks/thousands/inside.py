"""`python -m tests.benchmarks.thousands.inside --keep FOLDER`: processor time of each answer.

The application answers in this process, over a copy of a filled folder on SQLite, and only the
processor's time is counted: it says the same on a machine that is busy with other things. For what
a server takes by the clock, with PostgreSQL, the dashboard and a study that runs on, see the whole
benchmark.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from starlette.testclient import TestClient

from search.samplers import KnownCost
from search.samplers.sampler import WholeSampler
from search.sampling.sampler_context import RememberedPast, sampler_context_of
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from service.app import create_app
from service.settings import Settings
from storage.cursors import cursor_of
from storage.engine import Database
from storage.repositories.studies import Studies
from tests.benchmarks.thousands.__main__ import copy_of
from tests.benchmarks.thousands.changing import change
from tests.benchmarks.thousands.stock import stocked

_ROUNDS = 5


def processor_seconds(act: Callable[[], object], before: Callable[[], object] | None) -> float:
    """The median over a few times."""
    taken: list[float] = []
    for _ in range(_ROUNDS):
        if before is not None:
            before()
        began = time.process_time()
        act()
        taken.append(time.process_time() - began)
    return statistics.median(taken)


def answers(client: TestClient, database: Database, study_id: str, count: int) -> dict[str, float]:
    """Processor time of what one asks of a study: just after a change, and again."""
    path = f"/v1/studies/{study_id}"
    changing = {
        "front": f"{path}/front",
        "study": path,
        "importance": f"{path}/importance",
        "hypervolume curve": f"{path}/hypervolume",
        "study's page": f"/studies/{study_id}",
    }
    still = {
        "page of 50 trials: first": f"{path}/trials?limit=50",
        "page of 50 trials: last": f"{path}/trials?limit=50&cursor={cursor_of(max(0, count - 51))}",
        "all trials as CSV": f"{path}/trials?format=csv",
        "page of 50 studies": "/v1/studies?limit=50",
    }

    def get(place: str) -> Callable[[], object]:
        def ask() -> None:
            answer = client.get(place)
            assert answer.status_code == 200, answer.text[:500]

        return ask

    found: dict[str, float] = {}
    get(f"{path}/front")()
    for name, place in changing.items():
        found[f"{name}: first"] = processor_seconds(get(place), lambda: change(database, study_id))
        found[f"{name}: again"] = processor_seconds(get(place), None)
    for name, place in still.items():
        get(place)()
        found[name] = processor_seconds(get(place), None)
    return found


def ask_seconds(database: Database, study_id: str) -> float:
    """Processor time of one suggestion by `known_cost`, after one more trial than the last."""
    with database.read() as session:
        study = Studies(session).get(study_id)
    spec = StudySpec.model_validate(study.spec)
    assert isinstance(spec.sampler, KnownCost)
    past = RememberedPast(database, study_id)
    space = SearchSpace(spec)
    sampler_context = sampler_context_of(spec, space, past.now)
    past.now()

    def ask() -> None:
        sampler = KnownCost(random_share=0.0).build_for(sampler_context, seed=0)
        # What is asked for is whole: a sampler of whole configurations needs no study of Optuna's.
        assert isinstance(sampler, WholeSampler)
        sampler.values_for(10**9)

    return processor_seconds(ask, lambda: change(database, study_id))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.thousands.inside", description=__doc__
    )
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--per-study", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="the filled folder, used again if it is there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="reflectory-stock-") as name:
        folder = given.keep or Path(name) / "stock"
        stock = stocked(
            folder, trials=given.trials, studies=given.studies, per_study=given.per_study
        )
        by_question: dict[str, dict[int, float]] = {}
        with copy_of(folder, "sqlite") as (data_dir, url, _):
            database = Database(url)
            database.migrate()
            with TestClient(create_app(Settings(data_dir=data_dir))) as client:
                client.base_url = "http://127.0.0.1"
                for count, study_id in stock.reading.items():
                    found = answers(client, database, study_id, count)
                    found["suggestion by known_cost"] = ask_seconds(database, study_id)
                    for question, seconds in found.items():
                        by_question.setdefault(question, {})[count] = seconds
            database.dispose()
    sys.stdout.write(_table(by_question))


def _table(by_question: Mapping[str, Mapping[int, float]]) -> str:
    sizes = sorted(next(iter(by_question.values())))
    lines = [
        f"| processor ms, median of {_ROUNDS} | {' | '.join(f'{s:,}' for s in sizes)} | power |",
        f"|---|{'---:|' * (len(sizes) + 1)}",
    ]
    for name, seconds in by_question.items():
        cells = [f"{1000 * seconds[size]:.1f}" for size in sizes]
        values = [max(1e-4, seconds[size]) for size in sizes]
        power = float(np.polyfit(np.log(sizes), np.log(values), 1)[0])
        lines.append(f"| {name} | {' | '.join(cells)} | {power:.2f} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
