"""The data directory that a run begins with: studies of several sizes, one to run on, many small.

Making it takes minutes, so that a folder can be kept and used again.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from search.tasks import DataSources
from storage.engine import Database
from tests.benchmarks.thousands.copying import first_trials
from tests.benchmarks.thousands.filling import Cut, Filler, finish, mirrored, submitted


@dataclass(frozen=True)
class Stock:
    """What is there, by the ids of studies."""

    reading: dict[int, str]
    """Trials -> a finished study that is looked at, and into which further trials come."""
    live: str
    """A finished study as large as the largest of them, which is to run on."""
    small: list[str]


def urls(folder: Path) -> tuple[str, str]:
    """Our database and Optuna's in a data directory."""
    return f"sqlite:///{folder / 'reflectory.db'}", f"sqlite:///{folder / 'optuna.db'}"


def stocked(folder: Path, *, trials: int, studies: int, per_study: int) -> Stock:
    """Fill a folder, unless it was filled before; what is in it is not to be changed."""
    described = folder / "stock.json"
    if described.exists():
        return TypeAdapter(Stock).validate_json(described.read_bytes())
    shutil.rmtree(folder, ignore_errors=True)
    # Where the files would be: a server whose rows name files looks for it.
    (folder / "artifacts").mkdir(parents=True)
    ours, optunas = urls(folder)
    database = Database(ours)
    database.migrate()
    study = submitted(database, DataSources(cache=folder / "cache", folder=None), trials)
    sizes = sorted({trials // 10, 3 * trials // 10, trials})
    filler = Filler(database, study)
    cuts = {count: filler.fill(count) for count in sorted({per_study, *sizes})}
    stock = Stock(
        reading={count: f"reading{count}" for count in sizes},
        live=study.id,
        small=[f"small{number}" for number in range(studies)],
    )
    copies: dict[str, Cut] = {name: cuts[count] for count, name in stock.reading.items()}
    copies |= dict.fromkeys(stock.small, cuts[per_study])
    first_trials(ours, study.id, copies)
    for study_id in (*copies, study.id):
        finish(database, study_id)
        # The largest of those that are looked at has Optuna's side of its copy, which runs on.
        if study_id != stock.reading[trials]:
            mirrored(database, optunas, study_id)
    database.dispose()
    described.write_bytes(TypeAdapter(Stock).dump_json(stock))
    return stock


def on_dashboard(stock: Stock, count: int) -> str:
    """The study of this size that Optuna's dashboard has."""
    study_id = stock.reading[count]
    return stock.live if count == max(stock.reading) else study_id
