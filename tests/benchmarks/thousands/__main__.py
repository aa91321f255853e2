"""`python -m tests.benchmarks.thousands`: a study of 10,000 trials, and 100 studies of 200.

A data directory is filled with studies of made-up results, by our repositories and the real Optuna
study. A real server (API, coordinator, dashboard) is asked over HTTP on SQLite, on PostgreSQL or on
both, also of studies of a tenth and of three tenths of the trials, so that one sees what grows with
which power of them. Then the largest study is given a larger budget and runs on, with real trials.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import psutil

from search.optuna_tables import open_storage
from storage.engine import Database
from tests.benchmarks.thousands.asking import Asker, Timing, Timings, memory_of
from tests.benchmarks.thousands.copying import transferred
from tests.benchmarks.thousands.living import run_on
from tests.benchmarks.thousands.report import Found, told
from tests.benchmarks.thousands.stock import Stock, on_dashboard, stocked, urls
from tests.conftest import PostgresServer
from tests.service.running import Server, wait_until

DATABASES = ("sqlite", "postgresql")
_COMMANDS = ("api", "coordinator", "dashboard")


@contextmanager
def copy_of(folder: Path, kind: str) -> Iterator[tuple[Path, str, str]]:
    """A data directory like a filled one, and the URLs of its databases, which may be changed."""
    with ExitStack() as held:
        name = held.enter_context(tempfile.TemporaryDirectory(prefix="reflectory-thousands-"))
        data_dir = Path(name) / "data"
        shutil.copytree(folder, data_dir)
        ours, optunas = urls(data_dir)
        # A folder that was kept may be of an earlier version.
        kept = Database(ours)
        kept.migrate()
        kept.dispose()
        if kind == "postgresql":
            # PostgreSQL, which refuses to be root, runs as another user, to whom this is closed.
            server = PostgresServer(Path(tempfile.mkdtemp(prefix="reflectory-postgres-")))
            held.callback(server.stop)
            there = server.create_database(), server.create_database()
            database = Database(there[0])
            database.migrate()
            database.dispose()
            open_storage(there[1]).engine.dispose()
            transferred(ours, there[0], optuna=False)
            transferred(optunas, there[1], optuna=True)
            ours, optunas = there
        yield data_dir, ours, optunas


def measured(folder: Path, stock: Stock, kind: str, *, further: int) -> Found:
    """One run on one kind of database."""
    begun = os.getloadavg()[0]
    with ExitStack() as held:
        data_dir, ours, optunas = held.enter_context(copy_of(folder, kind))
        environment = {"REFLECTORY_DATABASE_URL": ours, "REFLECTORY_OPTUNA_URL": optunas}
        database = Database(ours)
        held.callback(database.dispose)
        database.migrate()
        server = Server(data_dir, environment=environment)
        held.callback(server.close)
        server.start()
        asked, of_list = _asked(server, database, stock)
        found = Found(
            database=kind,
            load=f"{begun:.1f} before and {os.getloadavg()[0]:.1f} after",
            of_studies=asked,
            of_list=of_list,
            memory=memory_of(_roles(server)),
            life=None,
        )
        if not further:
            return found
        # What takes long may fail; what was found by then is told at once.
        sys.stderr.write(told(found) + "\n")
        life = run_on(server, database, stock.live, further=further)
        return replace(found, memory=memory_of(_roles(server)), life=life)


def _asked(server: Server, database: Database, stock: Stock) -> tuple[Timings, dict[str, Timing]]:
    # It starts at its first visit.
    wait_until(lambda: server.http.get("/api/studies").status_code == 200, what="the dashboard")
    roles = _roles(server)
    asker = Asker(server.http, database, api=roles["api"], dashboard=roles["dashboard"])
    found = asker.of_dashboard({count: on_dashboard(stock, count) for count in stock.reading})
    of_list = dict(asker.of_list(stock.small[-1]))
    by_question: Timings = {}
    for count, study_id in stock.reading.items():
        for name, timing in asker.of_study(study_id, count):
            by_question.setdefault(name, {})[count] = timing
    return by_question | found, of_list


def _roles(server: Server) -> dict[str, psutil.Process]:
    """The server's processes by what they do; of forked ones the first."""
    found: dict[str, psutil.Process] = {}
    for process in server.processes():
        words = process.cmdline()
        role = next((command for command in _COMMANDS if command in words), None)
        if role is None:
            role = "fork server" if any("fork_server" in w for w in words) else "supervisor"
        found.setdefault(role, process)
    return found


def main() -> None:
    """Print what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.thousands", description=__doc__
    )
    parser.add_argument("--trials", type=int, default=10_000, help="of the largest study")
    parser.add_argument("--studies", type=int, default=100, help="how many small ones")
    parser.add_argument("--per-study", type=int, default=200, help="trials of each of those")
    parser.add_argument("--database", choices=(*DATABASES, "both"), default="both")
    parser.add_argument("--further", type=int, default=100, help="trials for which it runs on")
    parser.add_argument("--keep", type=Path, help="the filled folder, used again if it is there")
    parser.add_argument("--out", type=Path, help="where the report is written too")
    given = parser.parse_args()
    parts = [f"{datetime.now():%Y-%m-%d}, {os.cpu_count()} cores, `{' '.join(sys.argv[1:])}`"]
    with tempfile.TemporaryDirectory(prefix="reflectory-stock-") as name:
        folder = given.keep or Path(name) / "stock"
        began = time.monotonic()
        stock = stocked(
            folder, trials=given.trials, studies=given.studies, per_study=given.per_study
        )
        sys.stderr.write(f"filled after {time.monotonic() - began:.0f} s\n")
        for kind in DATABASES if given.database == "both" else (given.database,):
            found = measured(folder, stock, kind, further=given.further)
            parts.append(told(found))
            sys.stderr.write(f"{kind} after {time.monotonic() - began:.0f} s\n")
    text = "\n\n".join(parts) + "\n"
    sys.stdout.write(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
