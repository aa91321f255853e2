"""`doctor`: what is there on this machine and its server, what is wrong, and what to do."""

import importlib
import logging
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import typer

from service.client import Client, ClientError, Refused, Unreachable
from service.commands.connection import (
    UNFINISHED,
    DataDirOption,
    JsonOption,
    Place,
    ServerOption,
    find_server,
    print_json,
    settings_from,
)
from service.commands.shown.tables import in_words
from service.data_home import default_data_dir

_LEAST_FREE = 1 << 30
"""Bytes of a disk below which a study may end for want of room."""
_SECONDS = 5.0
"""For a server to answer."""
_LIBRARIES = ("torch", "numpy", "onnx", "onnxruntime", "optuna", "sqlalchemy", "fastapi", "typer")


class Verdict(StrEnum):
    """What a look came to."""

    GOOD = "good"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    verdict: Verdict
    found: str
    remedy: str | None = None
    """What to do about it; None: nothing."""


class _Heard(logging.Handler):
    """What is logged while something is looked at."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record's message."""
        self.said.append(record.getMessage())


def doctor(
    server: ServerOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False
) -> None:
    """Look at what is there on this machine and its server, what is wrong, and what to do.

    Nothing is changed, but that the kernels are built where they are not. Exit code 1: something is
    wrong.
    """
    folder = default_data_dir() if data_dir is None else data_dir
    findings: list[Finding] = []
    for look in (
        _versions,
        _devices,
        _kernels,
        lambda: _disk(folder),
        lambda: _database(data_dir),
        lambda: _server(find_server(server, data_dir)),
    ):
        for finding in look():
            findings.append(finding)
            if not as_json:
                _tell(finding)
    wrong = [finding for finding in findings if finding.verdict == Verdict.WRONG]
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        things = "thing is" if len(wrong) == 1 else "things are"
        typer.echo(f"{len(wrong)} {things} wrong" if wrong else "Nothing is wrong.")
    if wrong:
        raise typer.Exit(UNFINISHED)


def _tell(finding: Finding) -> None:
    mark = {Verdict.GOOD: "ok   ", Verdict.NOTE: "note ", Verdict.WRONG: "WRONG"}[finding.verdict]
    typer.echo(f"{mark} {finding.what:<12} {finding.found}")
    if finding.remedy is not None:
        typer.echo(f"{'':<18} -> {finding.remedy}")


def _versions() -> Iterator[Finding]:
    own = f"reflectory {version('reflectory')}, Python {platform.python_version()}"
    yield Finding("program", Verdict.GOOD, f"{own}, {sys.executable}")
    there: list[str] = []
    missing: list[str] = []
    for name in _LIBRARIES:
        try:
            there.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    yield Finding("libraries", Verdict.GOOD, ", ".join(there))
    if missing:
        yield Finding(
            "libraries",
            Verdict.NOTE,
            f"not installed: {', '.join(missing)}; this machine asks servers, and runs none",
            "to run a server here: pip install 'reflectory[server]'",
        )


def _devices() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    yield Finding("CPU", Verdict.GOOD, f"{cores} cores, {_memory()}")
    torch = _imported("torch")
    if torch is None:
        return
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            about = torch.cuda.get_device_properties(index)
            yield Finding("GPU", Verdict.GOOD, f"{about.name}, {in_words(about.total_memory)}")
    elif Path("/proc/driver/nvidia/version").exists():
        yield Finding(
            "GPU",
            Verdict.WRONG,
            f"there is an NVIDIA driver, and torch {torch.__version__} finds no GPU",
            "install torch for CUDA: pip install torch --index-url https://download.pytorch.org/whl/cu128",
        )
    else:
        yield Finding("GPU", Verdict.NOTE, "none; studies run on the CPU")


def _memory() -> str:
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{in_words(size)} memory"


def _kernels() -> Iterator[Finding]:
    if _imported("torch") is None:
        return
    from models.kernels.choice import kernels_are_built, wanted_backend

    try:
        wanted = wanted_backend()
    except ValueError as error:
        yield Finding("kernels", Verdict.WRONG, str(error), "unset REFLECTORY_BACKEND")
        return
    heard = _Heard()
    log = logging.getLogger("models")
    log.addHandler(heard)
    try:
        built = kernels_are_built()
    finally:
        log.removeHandler(heard)
    if not built:
        yield Finding(
            "kernels",
            Verdict.WRONG,
            f"structured models run several times slower: {'; '.join(heard.said) or 'not built'}",
            "install a C++ compiler (such as the package g++), and run this again",
        )
    elif wanted not in (None, "cpp"):
        yield Finding(
            "kernels", Verdict.NOTE, f"built, and REFLECTORY_BACKEND={wanted} leaves them unused"
        )
    else:
        yield Finding("kernels", Verdict.GOOD, "built")


def _disk(folder: Path) -> Iterator[Finding]:
    there = folder
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK):
        yield Finding(
            "disk",
            Verdict.WRONG,
            f"{there} cannot be written to, where the data directory {folder} is",
            "name another by --data-dir or REFLECTORY_DATA_DIR, or change its owner",
        )
        return
    free = shutil.disk_usage(there).free
    found = f"{in_words(free)} free at {folder}"
    if free < _LEAST_FREE:
        yield Finding(
            "disk",
            Verdict.WRONG,
            found,
            "delete studies that are not needed (`reflectory delete`), or move the data directory",
        )
    else:
        yield Finding("disk", Verdict.GOOD, found)


def _database(data_dir: Path | None) -> Iterator[Finding]:
    if _imported("sqlalchemy") is None:
        return
    from storage.engine import Database
    from storage.errors import SchemaMismatch, StorageError

    try:
        settings = settings_from(data_dir=data_dir)
    except typer.BadParameter as error:
        yield Finding("settings", Verdict.WRONG, error.message, "correct it, or unset it")
        return
    if settings.database_url.startswith("sqlite:"):
        file = Path(settings.database_url.removeprefix("sqlite:///"))
        if not file.exists():
            yield Finding(
                "database", Verdict.NOTE, f"none at {file} yet", "`reflectory serve` makes it"
            )
            return
    database = Database(settings.database_url)
    try:
        database.check()
        yield Finding("database", Verdict.GOOD, f"{database.url} has this version's tables")
    except SchemaMismatch as error:
        yield Finding(
            "database", Verdict.WRONG, str(error), "back it up, and run `reflectory migrate`"
        )
    except StorageError as error:
        yield Finding("database", Verdict.WRONG, str(error), "start it, or correct its URL")
    finally:
        database.dispose()


def _server(place: Place) -> Iterator[Finding]:
    if place.is_guessed and not place.may_begin_to_answer():
        yield Finding("server", Verdict.NOTE, "none runs here", "start one: reflectory serve")
        return
    try:
        with Client(place.url, timeout=_SECONDS, patience=0) as client:
            yield from _asked(client)
    except (ClientError, ValueError) as error:
        remedy = (
            "name a key by REFLECTORY_KEY"
            if isinstance(error, Refused)
            else "start it, or name another by --server"
        )
        yield Finding("server", Verdict.WRONG, f"{error} ({place.source})", remedy)


def _asked(client: Client) -> Iterator[Finding]:
    theirs, own = client.health().version, version("reflectory")
    found = f"{client.server} answers, version {theirs or 'unknown'}"
    if theirs not in (None, own):
        remedy = f"install the server's version here: pip install 'reflectory=={theirs}'"
        yield Finding("server", Verdict.NOTE, f"{found}; here it is {own}", remedy)
    else:
        yield Finding("server", Verdict.GOOD, found)
    try:
        parts = client.readiness().parts
    except Refused as error:
        for fault in error.problem.errors:
            yield Finding(f"its {fault.path}", Verdict.WRONG, fault.message, "see the server's log")
    else:
        for part in parts:
            verdict = Verdict.GOOD if part.ok else Verdict.NOTE
            yield Finding(f"its {part.name}", verdict, part.message or "good")
    with suppress(Unreachable):
        devices = client.devices()
        slots = [slot for device in devices for slot in device.slots]
        if not slots:
            yield Finding(
                "its devices",
                Verdict.WRONG,
                "no slots: studies wait",
                "let it work itself (`--workers`), or join machines: reflectory worker",
            )
        for device in devices:
            busy = sum(slot.busy for slot in device.slots)
            yield Finding(
                "its devices",
                Verdict.GOOD,
                f"{device.machine}, {device.model}: {len(device.slots)} slots, {busy} busy",
            )


def _imported(name: str) -> Any:
    """A library that only servers need; None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
