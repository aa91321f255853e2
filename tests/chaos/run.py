"""One run: a server, studies one after the other, strikes, and the audit at the end."""

import hashlib
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import psutil

from search.fronts.retention import Retention
from storage.blobs.folder import LocalArtifactStore
from storage.engine import Database
from tests.chaos.audit import audit_fleet, audit_folders, audit_store, audit_study
from tests.chaos.far_machine import FarMachine
from tests.chaos.postgres import MortalPostgres
from tests.chaos.small_disk import mount, unmount
from tests.chaos.strikes import Striker
from tests.chaos.wire import Wire
from tests.patience import wait_while_it_moves
from tests.service.running import Server

_MARK = "REFLECTORY_TEST_CHAOS_RUN"
_LEASE_SECONDS = 8.0
_PAUSES = (0.5, 4.0)
_DISK_MEBIBYTES = 96
_DISK_RESERVE = 1 << 20


@dataclass
class Summary:
    """What a run did and found."""

    studies: int = 0
    outcomes: Counter[str] = field(default_factory=Counter[str])
    strikes: Counter[str] = field(default_factory=Counter[str])
    requests_struck: Counter[str] = field(default_factory=Counter[str])
    """Requests of the far agent that were lost, or lost their answers, or came twice."""
    artifacts: int = 0
    rolled_away: int = 0
    """Studies that a database which was rolled back does not know any more."""
    seconds: float = 0.0


def run(
    folder: Path,
    *,
    seconds: float,
    seed: int,
    trials: int = 200,
    postgres: MortalPostgres | None = None,
    gone_leases: float = 3.0,
    only: tuple[str, ...] = (),
    every: bool = False,
    say: Callable[[str], None] = lambda _line: None,
) -> Summary:
    """Strike for that long while studies run, let the last one end in peace, and audit all.

    `gone_leases` and `only` are those of `Striker`. With `every` it goes on until each kind of
    strike has hit something.

    Raises:
        AssertionError: something was lost, doubled, left over or wrong.
    """
    generator, summary = random.Random(seed), Summary()
    data_dir = folder / "data"
    mark = secrets.token_hex(8)
    urls = _urls(data_dir, postgres)
    environment = {
        _MARK: mark,
        "REFLECTORY_DATABASE_URL": urls[0],
        "REFLECTORY_OPTUNA_URL": urls[1],
        "REFLECTORY_LEASE_SECONDS": str(_LEASE_SECONDS),
        "REFLECTORY_PUBLIC_ATTEMPTS": "true",
        "REFLECTORY_DISK_RESERVE": str(_DISK_RESERVE),
        # Where folders of sockets are made.
        "TMPDIR": str(folder),
    }
    with ExitStack() as held:
        store_folder = data_dir / "artifacts"
        if has_disk := mount(store_folder, _DISK_MEBIBYTES):
            held.callback(unmount, store_folder)
        server = Server(data_dir, environment=environment)
        held.callback(server.close)
        server.launch()
        wait_while_it_moves(lambda: server.answers("/readyz") == 200, what="a ready server")
        wire = held.enter_context(Wire(lambda: str(server.http.base_url), generator))
        far = FarMachine(folder / "far", wire, {_MARK: mark})
        held.callback(far.close)
        far.start()
        begun = time.monotonic()
        striker = Striker(
            server,
            far,
            generator,
            lease_seconds=_LEASE_SECONDS,
            url=urls[0],
            postgres=postgres,
            small_disk=has_disk,
            gone_leases=gone_leases,
            only=only,
        )
        studies: list[str] = []

        def goes_on() -> bool:
            return time.monotonic() - begun < seconds or (every and bool(striker.missing))

        while not studies or goes_on():
            studies.append(_submitted(server, _spec(seed + len(studies), trials)))
            # A study whose data cannot be prepared in three attempts fails, as it should.
            wait_while_it_moves(
                lambda: _epochs(server, studies[-1]) > 0,
                what="the first epoch",
                moved=lambda: _standing(server, studies[-1]),
            )
            if len(studies) == 1:
                begun = time.monotonic()
            _strike_until_it_ends(
                server,
                striker,
                studies[-1],
                goes_on=goes_on,
                generator=generator,
                say=say,
            )
        striker.mend(at_once=True)
        # Those that had ended may have been rolled back to when they ran.
        for study_id in studies:
            _wait_for_the_end(server, striker, study_id)
        known = [study_id for study_id in studies if not _is_unknown(server, study_id)]
        assert len(known) == len(studies) or striker.counts["database rolled back"] > 0
        summary.rolled_away = len(studies) - len(known)
        fronts = {study_id: server.get(f"/v1/studies/{study_id}/front") for study_id in known}
        for study_id in known:
            _audit_downloads(server, study_id, striker.damaged)
            _audit_counts(server, study_id)
        assert far.stop() == 0, f"the far agent ended with trouble: {far.log}"
        assert server.stop() == 0
        wait_while_it_moves(lambda: not _marked(mark), what="the end of all processes")
        database = Database(urls[0])
        held.callback(database.dispose)
        for study_id, front in fronts.items():
            summary.outcomes += audit_study(database, urls[1], study_id, front)
        audit_fleet(database)
        audit_folders(data_dir, far.folder)
        assert not list(folder.glob("reflectory-*")), f"a folder of sockets is left over: {folder}"
        store = LocalArtifactStore(store_folder)
        # Nobody writes any more, so that what a killed writer left needs not be let grow old.
        store.sweep(older_than_seconds=0.0)
        retention = Retention(database, store)
        retention.tidy()
        retention.sweep(older_than_seconds=0.0)
        rolled_back = striker.counts["database rolled back"] > 0
        summary.artifacts = audit_store(
            database, store_folder, striker.damaged, was_rolled_back=rolled_back
        )
    summary.studies = len(studies)
    summary.strikes = striker.counts
    summary.requests_struck = wire.struck
    summary.seconds = time.monotonic() - begun
    return summary


def _urls(data_dir: Path, postgres: MortalPostgres | None) -> tuple[str, str]:
    if postgres is not None:
        return postgres.create_database(), postgres.create_database()
    return f"sqlite:///{data_dir / 'reflectory.db'}", f"sqlite:///{data_dir / 'optuna.db'}"


def _spec(seed: int, trials: int) -> dict[str, Any]:
    """Trials of a fraction of a second each; the dense ones and the others have equal counts.

    Every other study's trials pause and go on; of every four studies, two train trials together.
    """
    pauses = {
        "sampler": {"kind": "freeze_thaw", "startup_trials": 4},
        "budget": {"trials": max(1, trials // 4), "epochs": 8},
    }
    return {
        "task": {"kind": "digits"},
        "architectures": ["rnn", "mlp"],
        "parametrizations": ["dense", "low_rank"],
        "space": {"hidden_size": {"low": 4, "high": 16}, "batch_size": 256},
        "objectives": ["quality", "parameters"],
        "sampler": {"kind": "random"},
        "budget": {"trials": trials, "epochs": 2},
        "resources": {"stack": 4 if seed % 4 >= 2 else 1},
        "seed": seed,
        **(pauses if seed % 2 else {}),
    }


def _submitted(server: Server, spec: dict[str, Any]) -> str:
    """Submit by a key, so that an answer that got lost submits nothing twice."""
    headers = {"Idempotency-Key": secrets.token_hex(8)}

    def submit() -> str | None:
        with suppress(httpx2.TransportError):
            answer = server.http.post("/v1/studies", json=spec, headers=headers)
            if answer.status_code == 202:
                return str(answer.json()["id"])
        return None

    return str(wait_while_it_moves(submit, what="a submitted study"))


def _strike_until_it_ends(
    server: Server,
    striker: Striker,
    study_id: str,
    *,
    goes_on: Callable[[], bool],
    generator: random.Random,
    say: Callable[[str], None],
) -> None:
    while goes_on():
        if _has_ended(server, study_id):
            return
        say(striker.strike())
        time.sleep(generator.uniform(*_PAUSES))
    _wait_for_the_end(server, striker, study_id)


def _wait_for_the_end(server: Server, striker: Striker, study_id: str) -> None:
    def ended() -> bool:
        striker.mend()
        return _has_ended(server, study_id)

    wait_while_it_moves(
        ended,
        what=f"the end of study {study_id}; log {server.log}",
        moved=lambda: _standing(server, study_id),
    )


def _standing(server: Server, study_id: str) -> object:
    """Where a study stands: whatever changes in it is progress."""
    with suppress(httpx2.TransportError):
        answer = server.http.get(f"/v1/studies/{study_id}")
        if answer.status_code == 200:
            progress = answer.json()["progress"]
            return progress["trials"], progress["epochs_trained"]
    return None


def _is_unknown(server: Server, study_id: str) -> bool:
    with suppress(httpx2.TransportError):
        return server.http.get(f"/v1/studies/{study_id}").status_code == 404
    return False


def _audit_downloads(server: Server, study_id: str, damaged: Set[str]) -> None:
    """Prove that a damaged file is refused in so many words, and that every other is given out."""
    for trial in server.trials(study_id):
        if trial["outcome"] != "complete":
            continue
        answer = server.http.get(f"/v1/studies/{study_id}/trials/{trial['number']}/checkpoint")
        if answer.status_code != 200:
            problem = answer.json()
            assert problem["type"] == "urn:reflectory:damaged-artifact", problem
            assert any(digest in problem["detail"] for digest in damaged), problem
        else:
            given = hashlib.sha256(answer.content).hexdigest()
            assert answer.headers["ETag"] == f'"{given}"'


def _audit_counts(server: Server, study_id: str) -> None:
    """Prove that the counts of a study's document are those of its trials."""
    told = server.study(study_id)["progress"]["trials"]
    outcomes = Counter(trial["outcome"] for trial in server.trials(study_id))
    for outcome in ("complete", "stopped", "failed", "cancelled"):
        assert told[outcome] == outcomes[outcome], (study_id, told, outcomes)


def _epochs(server: Server, study_id: str) -> int:
    with suppress(httpx2.TransportError):
        answer = server.http.get(f"/v1/studies/{study_id}")
        if answer.status_code == 200:
            return int(answer.json()["progress"]["epochs_trained"])
    return 0


def _has_ended(server: Server, study_id: str) -> bool:
    with suppress(httpx2.TransportError):
        answer = server.http.get(f"/v1/studies/{study_id}")
        if answer.status_code == 200:
            study = answer.json()
            if study["state"] in ("failed", "cancelled"):
                raise AssertionError(
                    f"the study ended as {study['state']}: {study['state_reason']}"
                )
            return bool(study["state"] == "finished")
        # Rolled back to when it was not there yet.
        return answer.status_code == 404
    return False


def _marked(mark: str) -> list[str]:
    """Every process on this machine that was started by this run."""
    found: list[str] = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with suppress(psutil.Error):
            if process.environ().get(_MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(f"{process.pid} {' '.join(process.cmdline())}")
    return found
