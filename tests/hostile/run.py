"""One run: an API process with a few rows, and everything that is sent to it."""

import json
import os
import re
import resource
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep
from typing import Any

import httpx2
import psutil

from service.auth.api_keys import create_key, revoke_key
from service.auth.principal import Scope
from storage.records import StudyRecord, TrialState
from tests.hostile import wires
from tests.hostile.documents import Documents, Strange
from tests.hostile.watching import Seen, files_below, unlinked_bytes, watched
from tests.service.processes import ApiProcess, running_api
from tests.service.site import Lease, Site

_MEBIBYTE = 1 << 20
_MOST_GROWTH = 20 * _MEBIBYTE
_MOST_SECONDS = 1.0
_AT_ONCE = 4
_FILES = 4096
_HELD_SECONDS = 2.0
"""How long streams stay open, so that probes come while they are."""

Headers = Mapping[str, str]

_KEYS: Mapping[str, tuple[Scope, ...]] = {
    "right": ("admin", "work"),
    "work": ("work",),
    "read": ("read",),
    "revoked": ("admin",),
}


@dataclass(frozen=True)
class Amounts:
    """How much of everything is sent."""

    large_bytes: int
    """Of each body for attempts and uploads."""
    small_bytes: int
    """Of each body for all other routes."""
    silent: int
    half: int
    streams: int
    every: int
    """Of the strange documents, each so manieth is sent."""
    credentials: int
    """How many of the wrong ones each route without files gets, in turn."""
    settings: Mapping[str, Any]


FULL = Amounts(
    large_bytes=wires.DECLARED,
    small_bytes=4 * _MEBIBYTE,
    silent=1000,
    half=100,
    streams=500,
    every=1,
    credentials=4,
    settings={},
)
QUICK = Amounts(
    large_bytes=8 * _MEBIBYTE,
    small_bytes=_MEBIBYTE // 2,
    silent=100,
    half=10,
    streams=60,
    every=9,
    credentials=1,
    settings={"header_seconds": 2.0, "body_idle_seconds": 2.0},
)


@dataclass(frozen=True)
class Check:
    """A promise, and what was measured."""

    promise: str
    holds: bool
    measured: str
    is_timing: bool = False
    """Whether a busy machine alone can break it."""


@dataclass(frozen=True)
class _Operation:
    method: str
    path: str
    """With the ids of rows that are there."""
    template: str
    document: Mapping[str, Any]


class _Target:
    """A running server, and whom it knows."""

    def __init__(self, site: Site, api: ApiProcess, folder: Path) -> None:
        self.site = site
        self.api = api
        self.process = psutil.Process(api.process.pid)
        host, port = api.url.removeprefix("http://").split(":")
        self.wire = wires.Wire(host, int(port))
        self._folders = (site.settings.data_dir, folder / "tmp")
        self.study: StudyRecord = site.study()
        site.run(self.study)
        site.trial(self.study, 0, state=TrialState.RUNNING)
        self.lease: Lease = site.lease(self.study, 0)
        made = {
            name: create_key(site.database, name=name, scopes=scopes)
            for name, scopes in _KEYS.items()
        }
        revoke_key(site.database, made["revoked"].record.id)
        self.keys = {name: {"Authorization": f"Bearer {key.text}"} for name, key in made.items()}
        bogus = f"rfl_{secrets.token_urlsafe(32)}"
        self.wrong: dict[str, Headers] = {
            "no key": {},
            "a bogus one": {"Authorization": f"Bearer {bogus}"},
            "a revoked one": self.keys["revoked"],
        }
        with httpx2.Client(base_url=api.url, headers=self.keys["right"], timeout=60) as http:
            self.openapi: dict[str, Any] = http.get("/openapi.json").json()
        self.operations = [
            _Operation(method.upper(), self._path(path), path, document)
            for path, methods in self.openapi["paths"].items()
            for method, document in methods.items()
        ]

    def _path(self, template: str) -> str:
        known = {"study_id": self.study.id, "number": "0", "attempt_id": self.lease.attempt}
        return re.sub(r"{(\w+)}", lambda match: known.get(match[1], "nobody"), template)

    def other_scope(self, operation: _Operation) -> Headers:
        """A key that is known, and not for this."""
        is_work = operation.template.startswith("/v1/agents")
        return self.keys["read" if is_work else "work"]

    def right(self, operation: _Operation) -> Headers:
        """What the operation is allowed with."""
        is_attempts = "/attempts/" in operation.template
        return {**self.keys["right"], **(self.lease.headers if is_attempts else {})}

    def files(self) -> dict[str, int]:
        """What is on disk."""
        return files_below(*self._folders)

    @contextmanager
    def watched(self) -> Iterator[Seen]:
        """Measure meanwhile."""
        with watched(self.process, self.wire.host, self.wire.port) as seen:
            yield seen


def attack(folder: Path, amounts: Amounts, *, tell: Callable[[str], object]) -> list[Check]:
    """Send everything; what held."""
    (folder / "tmp").mkdir(parents=True)
    before = os.environ.get("TMPDIR")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(_FILES, hard)), hard))
    os.environ["TMPDIR"] = str(folder / "tmp")
    site = Site(folder / "data")
    many = 10_000_000
    settings = site.settings.model_copy(
        update={
            # So that each request is refused for what it is, and not for how many there were.
            "refusals_per_minute": many,
            "address_requests_per_minute": many,
            "requests_per_minute": many,
            "log_level": "ERROR",
            # No coordinator works here.
            "coordinator_silence_seconds": 3600.0,
            **amounts.settings,
        }
    )
    settings.coordinator_alive.touch()
    checks: list[Check] = []
    try:
        with running_api(settings) as api:
            target = _Target(site, api, folder)
            _warm_up(target)
            for phase in (_send_bodies, _hold_connections, _open_streams, _send_documents):
                tell(f"{(phase.__doc__ or '').strip()}\n")
                checks += phase(target, amounts)
            alive = api.process.poll() is None
            checks.append(Check("the API process is the same one to the end", alive, ""))
    finally:
        site.close()
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return checks


def _warm_up(target: _Target) -> None:
    """Every route once, and threads, so that what is measured is no first use."""
    with ThreadPoolExecutor(_AT_ONCE * 8) as pool:
        list(
            pool.map(
                lambda operation: _plain(target, operation),
                [one for one in target.operations if not one.template.endswith("/events")] * 2,
            )
        )


def _plain(target: _Target, operation: _Operation) -> int:
    body = b"{}" if operation.method in ("POST", "PUT", "PATCH") else b""
    headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    return _send(target, operation, {**headers, **target.keys["read"]}, [body])


def _send(target: _Target, operation: _Operation, headers: Headers, pieces: Any) -> int:
    first = wires.head(operation.method, operation.path, host="localhost", headers=headers)
    return wires.exchange(target.wire, first, pieces)


def _media_type(operation: _Operation) -> str:
    content = operation.document.get("requestBody", {}).get("content", {})
    kind = next(iter(content), "application/json")
    return f"{kind}; boundary=x" if kind.startswith("multipart/") else kind


def _takes_files(operation: _Operation) -> bool:
    is_upload = "multipart" in _media_type(operation)
    return is_upload or "/attempts/" in operation.template


def _send_bodies(target: _Target, amounts: Amounts) -> list[Check]:
    """Bodies that nobody may send, on every route."""
    statuses: Counter[int] = Counter()
    files = target.files()

    def one(operation: _Operation, headers: Headers) -> Counter[int]:
        most = amounts.large_bytes if _takes_files(operation) else amounts.small_bytes
        found: Counter[int] = Counter()
        for body in wires.bodies(most):
            given = {"Content-Type": _media_type(operation), **body.headers, **headers}
            found[_send(target, operation, given, body.pieces)] += 1
        return found

    work: list[tuple[_Operation, Headers]] = []
    for turn, operation in enumerate(target.operations):
        wrong = [*target.wrong.values(), target.other_scope(operation)]
        number = len(wrong) if _takes_files(operation) else amounts.credentials
        work += [(operation, wrong[(turn + place) % len(wrong)]) for place in range(number)]
    with target.watched() as seen, ThreadPoolExecutor(_AT_ONCE) as pool:
        for found in pool.map(lambda pair: one(*pair), work):
            statuses += found
    sent = f"{statuses.total()} bodies without a right key"
    bad = [status for status in statuses if status >= 500 or status == wires.HANGS]
    return [
        Check(f"{sent} are answered or cut off", not bad, _counted(statuses)),
        *_unharmed(sent, seen, target, files),
    ]


def _hold_connections(target: _Target, amounts: Amounts) -> list[Check]:
    """Connections that never finish anything."""
    files = target.files()
    post = {"Content-Type": "application/json", "Content-Length": "1000"}
    halves = {
        "without a word": (b"", amounts.silent),
        "half a head": (b"GET /v1/studies HTTP/1.1\r\nHost: localhost\r\nX-Half:", amounts.half),
        "half a body, no key": (
            wires.head("POST", "/v1/studies", host="localhost", headers=post) + b"{",
            amounts.half,
        ),
        "half a body, a right key": (
            wires.head(
                "POST", "/v1/studies", host="localhost", headers={**post, **target.keys["right"]}
            )
            + b"{",
            amounts.half,
        ),
    }
    checks: list[Check] = []
    total = sum(number for _, number in halves.values())
    with target.watched() as seen, ExitStack() as held:
        opened = {name: list(_hold(target, held, *half)) for name, half in halves.items()}
        for name, connections in opened.items():
            closed = sum(wires.ends(connection) for connection in connections)
            checks.append(
                Check(
                    f"{len(connections)} connections {name} are closed",
                    closed == len(connections),
                    f"{closed} were",
                )
            )
    return [*checks, *_unharmed(f"{total} held connections", seen, target, files)]


def _hold(target: _Target, held: ExitStack, first: bytes, number: int) -> Iterator[Any]:
    for _ in range(number):
        connection = held.enter_context(target.wire.open())
        connection.sendall(first)
        yield connection


def _open_streams(target: _Target, amounts: Amounts) -> list[Check]:
    """Streams of events, all opened at once."""
    statuses: Counter[int] = Counter()
    path = f"/v1/studies/{target.study.id}/events"
    first = wires.head("GET", path, host="localhost", headers=target.keys["right"])
    with target.watched() as seen, ExitStack() as held:
        opened = list(_hold(target, held, first, amounts.streams))
        for connection in opened:
            statuses[wires.status_of(connection)] += 1
        sleep(_HELD_SECONDS)
    wrong = [status for status in statuses if status not in (200, 429, 503)]
    return [
        Check(f"{amounts.streams} streams are open or refused", not wrong, _counted(statuses)),
        _answers(f"{amounts.streams} streams at once", seen),
    ]


@dataclass(frozen=True)
class _Try:
    """One request with something strange in it."""

    operation: _Operation
    what: str
    headers: Headers
    body: Callable[[], bytes] = bytes


def _send_documents(target: _Target, amounts: Amounts) -> list[Check]:
    """Strange parts of documents and parameters, with a right key."""
    documents = Documents(target.openapi)
    # What ends things comes last, so that all else is asked of things that are there.
    operations = sorted(target.operations, key=_ends_something)
    tries = [
        one
        for operation in operations
        for number, one in enumerate((*_strange(operation, documents), *_asked(operation)))
        if number % amounts.every == 0
    ]
    valid = [one for operation in operations for one in _valid(operation, documents)]

    def send(one: _Try) -> int:
        body = one.body()
        headers = {"Content-Type": "application/json", "Content-Length": str(len(body))}
        given = {**headers, **target.right(one.operation), **one.headers}
        return _send(target, one.operation, given, [body])

    statuses: Counter[int] = Counter()
    faults: list[str] = []
    with target.watched() as seen, ThreadPoolExecutor(_AT_ONCE) as pool:
        for one, status in zip(tries, pool.map(send, tries), strict=True):
            statuses[status] += 1
            if status >= 500 or status == wires.HANGS:
                place = f"{one.operation.method} {one.operation.template}"
                faults.append(f"{status} {place} {one.what}")
    understood = Counter(map(send, valid))
    shown = "; ".join(faults[:10]) or _counted(statuses)
    return [
        Check(f"{len(tries)} strange documents and parameters: never a 5xx", not faults, shown),
        Check(
            f"{len(valid)} documents of the same making, nothing strange in them, are understood",
            sum(number for status, number in understood.items() if status < 300) > len(valid) / 3,
            _counted(understood),
        ),
        _answers(f"{len(tries)} strange documents", seen),
    ]


def _ends_something(operation: _Operation) -> bool:
    return operation.method == "DELETE" or operation.template.endswith(("/complete", "/cancel"))


def _json_schema(operation: _Operation) -> Mapping[str, Any] | None:
    content = operation.document.get("requestBody", {}).get("content", {})
    return content.get("application/json", {}).get("schema")


def _strange(operation: _Operation, documents: Documents) -> Iterator[_Try]:
    schema = _json_schema(operation)
    for one in () if schema is None else documents.strange(schema):
        yield _Try(operation, f"{one.place}: {one.what}", {}, _text_of(one))


def _text_of(one: Strange) -> Callable[[], bytes]:
    return lambda: one.text.encode()


def _valid(operation: _Operation, documents: Documents) -> Iterator[_Try]:
    schema = _json_schema(operation)
    if schema is not None:
        text = json.dumps(documents.valid(schema)).encode()
        yield _Try(operation, "valid", {}, lambda: text)


_WORDS = {"a NUL": "a%00b", "a surrogate": "%ed%a0%80", "10^400": "1" + "0" * 400, "1e400": "1e400"}


def _asked(operation: _Operation) -> Iterator[_Try]:
    """Every parameter with something strange as its value."""
    places = operation.template.split("/")
    for parameter in operation.document.get("parameters", ()):
        name = parameter["name"]
        for what, word in _WORDS.items():
            told = f"{parameter['in']} {name}: {what}"
            if parameter["in"] == "header":
                yield _Try(operation, told, {name: word})
            elif parameter["in"] == "query":
                yield _Try(replace(operation, path=f"{operation.path}?{name}={word}"), told, {})
            else:
                path = [
                    word if place == f"{{{name}}}" else given
                    for place, given in zip(places, operation.path.split("/"), strict=True)
                ]
                yield _Try(replace(operation, path="/".join(path)), told, {})


def _unharmed(what: str, seen: Seen, target: _Target, files: Mapping[str, int]) -> list[Check]:
    left = {name: size for name, size in target.files().items() if files.get(name) != size}
    held = unlinked_bytes(target.process.pid)
    return [
        Check(
            f"{what}: the API grows by less than {_MOST_GROWTH // _MEBIBYTE} MiB",
            seen.grown < _MOST_GROWTH,
            f"{seen.grown / _MEBIBYTE:.1f} MiB over {seen.rss_before / _MEBIBYTE:.0f} MiB",
        ),
        _answers(what, seen),
        Check(
            f"{what}: nothing is left on disk",
            not left and not held and seen.unlinked_most < _MEBIBYTE,
            f"{sorted(left)[:5]}, at most {seen.unlinked_most} bytes in unnamed files",
        ),
    ]


def _answers(what: str, seen: Seen) -> Check:
    refused = sum(status != 200 for _, status in seen.healthz)
    return Check(
        f"{what}: /healthz answers in less than {_MOST_SECONDS:g} s",
        seen.slowest < _MOST_SECONDS and not refused,
        f"median {1000 * seen.median:.0f} ms, longest {1000 * seen.slowest:.0f} ms "
        f"of {len(seen.healthz)} probes, {refused} without 200",
        is_timing=not refused,
    )


def _counted(statuses: Counter[int]) -> str:
    names = {wires.SILENT: "closed", wires.HANGS: "hanging"}
    return json.dumps({str(names.get(one, one)): n for one, n in sorted(statuses.items())})
