"""The Python client against the real API, over a network that breaks."""

import asyncio
import hashlib
import itertools
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import httpx2
import pytest

from search.studies.resolving import without_defaults
from search.studies.spec import StudySpec
from service.client import AsyncClient, Client, Damaged, Refused, Unreachable
from service.client.transport.backoff import again
from storage.records import Json
from storage.repositories.events import Events
from tests.patience import LONG_SECONDS
from tests.service.listening import listening
from tests.service.relay import Relay
from tests.service.running import wait_until
from tests.service.site import SMALL_SPEC, Site
from tests.storage.records import START


@pytest.fixture
def address(site: Site) -> Iterator[tuple[str, int]]:
    with listening(site) as address:
        yield address


@pytest.fixture
def relay(address: tuple[str, int]) -> Iterator[Relay]:
    with Relay(address) as relay:
        yield relay


@pytest.fixture
def client(relay: Relay) -> Iterator[Client]:
    with Client(relay.url, patience=20) as client:
        yield client


def test_a_lost_answer_to_a_submission_stores_one_study(relay: Relay, client: Client) -> None:
    relay.cuts.extend([0, 0])
    study = client.submit(SMALL_SPEC)
    assert len(relay.passed) == 3
    assert [found.id for found in client.studies()] == [study.id]
    assert study.state == "queued"
    assert not study.ended


def test_the_same_key_gives_the_same_study(client: Client) -> None:
    first = client.submit(SMALL_SPEC, idempotency_key="one")
    assert client.submit(SMALL_SPEC, idempotency_key="one").id == first.id
    assert client.submit(SMALL_SPEC, idempotency_key="two").id != first.id


def test_a_spec_may_be_given_as_an_object(client: Client) -> None:
    spec = StudySpec.model_validate(SMALL_SPEC)
    study = client.submit(spec)
    assert without_defaults(StudySpec.model_validate(study.spec)) == spec


def test_a_dry_run_describes_the_space_and_stores_nothing(client: Client) -> None:
    answer = client.dry_run(SMALL_SPEC)
    assert answer.candidates == (
        {"architecture": "rnn", "parametrization": "dense"},
        {"architecture": "rnn", "parametrization": "low_rank"},
    )
    assert 0 < answer.parameter_range.low < answer.parameter_range.high
    assert list(client.studies()) == []


def test_a_refusal_carries_path_value_and_what_is_allowed(client: Client) -> None:
    with pytest.raises(Refused) as refused:
        client.submit({"task": {"kind": "digits"}, "architectures": ["transformer"]})
    problem = refused.value.problem
    assert problem.status == 422
    fault = next(error for error in problem.errors if error.path == "architectures.0")
    assert "'transformer'" in fault.message
    assert "gru" in fault.message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_refused_unsent(
    relay: Relay, client: Client, value: float
) -> None:
    spec = {**SMALL_SPEC, "limits": {"min_throughput_ratio": value}}
    for ask in (client.submit, client.dry_run, client.submit_collection):
        with pytest.raises(Refused) as refused:
            ask(spec)
        (fault,) = refused.value.problem.errors
        assert fault.path == "limits.min_throughput_ratio"
        assert f"{value}" in fault.message
        assert "finite" in fault.message
    with pytest.raises(Refused, match=r"options\.1: "):
        client.dry_run({**SMALL_SPEC, "space": {"d": {"options": [1.0, value]}}})
    assert not relay.passed


def test_reports_of_files_are_for_studies_of_networks(site: Site, client: Client) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, quality=0.5, throughput=10.0)
    for ask in (
        lambda: client.network_report(study.id, 0),
        lambda: client.network_reports(study.id),
        lambda: client.choose_file(study.id),
    ):
        with pytest.raises(Refused, match=r"is digits.*for studies of the task model_outputs"):
            ask()


def test_a_file_is_named_by_text_as_by_a_path(
    site: Site, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, quality=0.5, throughput=10.0)
    monkeypatch.chdir(tmp_path)
    assert client.download(study.id, 0, "one.safetensors").path == Path("one.safetensors")
    client.download(study.id, 0, Path("two.safetensors"))
    assert Path("one.safetensors").read_bytes() == Path("two.safetensors").read_bytes()
    assert client.folder(study.id, 0, "trial.zip").path == Path("trial.zip")
    assert client.bundle(study.id, "front.zip").size == Path("front.zip").stat().st_size


def test_what_does_not_exist_is_refused_with_404(client: Client) -> None:
    for ask in (client.study, client.front, client.cancel, lambda name: next(client.watch(name))):
        with pytest.raises(Refused) as refused:
            ask("no-such/../study")
        assert refused.value.problem.status == 404


def test_lists_are_read_over_all_pages(site: Site, client: Client) -> None:
    study = site.study()
    for number in range(103):
        site.trial(study, number)
    assert [trial.number for trial in client.trials(study.id)] == list(range(103))


def test_a_watch_over_broken_connections_loses_and_doubles_nothing(
    site: Site, relay: Relay, client: Client
) -> None:
    study = site.study()
    site.run(study)
    for number in range(6):
        site.trial(study, number, quality=0.5, throughput=10.0)
    site.finish(study)
    with site.database.read() as session:
        told = Events(session).after(study.id, 0, 1000)
    # Cut in the head, in the middle of events, and at places in between.
    relay.cuts.extend([0, 150, 500, 700, 701, 1200, 900])
    heard = list(client.watch(study.id))
    assert [event.number for event in heard] == [event.number for event in told]
    assert [event.kind for event in heard] == [event.kind for event in told]
    assert not relay.cuts, "every cut was met"
    assert [event.number for event in client.watch(study.id, after=3)] == [
        event.number for event in told[3:]
    ]


def test_a_watch_hears_what_happens_while_it_listens(site: Site, client: Client) -> None:
    study = site.study()
    events = client.watch(study.id)
    assert next(events).kind == "study"
    site.run(study)
    assert next(events).payload["state"] == "running"
    site.finish(study)
    assert next(events).payload["state"] == "finished"
    assert list(events) == []


def test_a_watch_goes_on_when_the_server_comes_back(site: Site) -> None:
    study = site.study()
    with socket.create_server(("127.0.0.1", 0)) as placeholder:
        port = placeholder.getsockname()[1]
    heard: list[int] = []

    def watch() -> None:
        with Client(f"http://127.0.0.1:{port}") as client:
            heard.extend(event.number for event in client.watch(study.id, patience=LONG_SECONDS))

    thread = threading.Thread(target=watch)
    thread.start()
    # Each server stays until it was heard: one that is there for a fixed time may be missed.
    for act, told in ((site.run, [1, 2]), (site.finish, [1, 2, 3])):
        with listening(site, port=port):
            act(study)
            wait_until(lambda told=told: heard == told, what=f"events {told}")
    thread.join(LONG_SECONDS)
    assert not thread.is_alive(), "the watch ends with the study"
    assert heard == [1, 2, 3]


def test_a_watch_gives_up_when_its_patience_is_over(site: Site) -> None:
    study = site.study()
    with listening(site) as (host, port):
        events = Client(f"http://{host}:{port}").watch(study.id, patience=0.5)
        next(events)
    with pytest.raises(Unreachable, match="no Reflectory server answers"):
        next(events)


def test_a_broken_download_goes_on_where_it_broke(
    site: Site, relay: Relay, client: Client, tmp_path: Path
) -> None:
    study = site.study()
    site.trial(study, 0)
    size = httpx2.head(f"{relay.url}/v1/studies/{study.id}/trials/0/checkpoint").headers[
        "Content-Length"
    ]
    before = len(relay.passed)
    relay.cuts.extend([0, 900, 1200])
    steps: list[tuple[int, int | None]] = []
    out = tmp_path / "model.safetensors"
    got = client.download(study.id, 0, out, told=lambda *step: steps.append(step))
    assert got.path == out
    assert got.size == out.stat().st_size == int(size)
    assert got.sha256 == hashlib.sha256(out.read_bytes()).hexdigest()
    assert steps[-1] == (got.size, got.size)
    heads = 4 * 700
    assert sum(relay.passed[before:]) < got.size + heads
    assert list(tmp_path.glob(".*")) == [], "nothing unfinished is left"


def test_a_damaged_download_is_not_kept(
    site: Site, relay: Relay, client: Client, tmp_path: Path
) -> None:
    study = site.study()
    site.trial(study, 0)
    out = tmp_path / "out"
    out.mkdir()
    relay.damage_at = 1500
    with pytest.raises(Damaged, match="sha256"):
        client.download(study.id, 0, out / "model.safetensors")
    assert list(out.iterdir()) == []


def test_the_growth_of_the_hypervolume_is_read(site: Site, client: Client) -> None:
    study = site.study()
    assert client.hypervolume(study.id) == []
    payload: dict[str, Json] = {"trials": [3], "hypervolume": 0.5, "trial": 3}
    with site.database.write() as session:
        Events(session).append(study.id, "front", payload, START)
    (point,) = client.hypervolume(study.id)
    assert (point.trial, point.hypervolume, point.points, point.at) == (3, 0.5, 1, START)


def test_reports_come_in_three_forms(site: Site, client: Client) -> None:
    study = site.study()
    trial = site.trial(study, 0)
    assert json.loads(client.report(study.id, 0))["totals"]["parameters"] == trial.parameters
    assert client.report(study.id, 0, form="csv").count("\n") > 3
    assert "<table" in client.report(study.id, 0, form="html")


def test_nobody_there_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match=str(port)):
        Client(f"http://127.0.0.1:{port}", patience=0).catalog()
    for nonsense in ("", "127.0.0.1:8080", "ftp://example.org", "http://"):
        with pytest.raises(Unreachable):
            Client(nonsense)


def test_another_kind_of_server_is_unreachable() -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<h1>It works!</h1>")

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        with Client(f"http://127.0.0.1:{other.server_port}") as client:
            with pytest.raises(
                Unreachable,
                match=r"no Reflectory server, or one of another version: GET /v1/\S+: Invalid JSON",
            ):
                client.catalog()
            with pytest.raises(Unreachable):
                list(client.watch("study", patience=0))
        other.shutdown()


def test_a_lost_answer_to_a_deletion_is_no_refusal(
    site: Site, relay: Relay, client: Client
) -> None:
    study = site.study()
    site.finish(study)
    relay.cuts.append(0)
    client.delete(study.id)
    assert not relay.cuts
    with pytest.raises(Refused, match=study.id):
        client.delete(study.id)


def test_what_is_not_safe_to_repeat_is_asked_once(relay: Relay, client: Client) -> None:
    relay.cuts.append(0)
    with pytest.raises(Unreachable):
        client.create_key("laptop")
    assert len(relay.passed) == 1


class Asked(BaseHTTPRequestHandler):
    """Says what it was shown, and is busy at first."""

    shown: ClassVar[list[str | None]] = []
    busy: ClassVar[list[tuple[int, str]]] = []

    def do_GET(self) -> None:
        self.shown.append(self.headers["Authorization"])
        status, after = self.busy.pop() if self.busy else (200, "")
        self.send_response(status)
        if after:
            self.send_header("Retry-After", after)
        self.end_headers()
        self.wfile.write(b'{"status": "alive"}')

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def asked() -> Iterator[str]:
    Asked.shown.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_busy_server_is_asked_again_when_it_says(asked: str) -> None:
    for status, after in ((429, "1"), (503, "a date")):
        began = time.monotonic()
        # A date is in whole seconds: this one is at least one second away.
        soon = formatdate(time.time() + 2, usegmt=True)
        Asked.busy.append((status, soon if after == "a date" else after))
        with Client(asked, patience=20) as client:
            assert client.health().status == "alive"
        assert time.monotonic() - began >= 0.9
    Asked.busy.append((429, "3600"))
    with Client(asked) as client, pytest.raises(Unreachable, match="429"):
        client.health()


def test_a_key_is_sent_and_shown_nowhere(
    asked: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("REFLECTORY_KEY", "rfl_from-the-environment\n")
    for key, sent in (("rfl_argument", "rfl_argument"), (None, "rfl_from-the-environment")):
        with Client(asked, key=key) as client:
            client.health()
            assert Asked.shown.pop() == f"Bearer {sent}"
            assert sent not in repr(client) + repr(vars(client))
    assert "rfl_" not in caplog.text
    with pytest.raises(ValueError, match="characters") as refused:
        Client(asked, key="rfl_ä b")
    assert "rfl_" not in str(refused.value)
    monkeypatch.delenv("REFLECTORY_KEY")
    with Client(asked) as client:
        client.health()
    assert Asked.shown.pop() is None
    with pytest.raises(Unreachable) as unreachable:
        Client("http://user:secret@127.0.0.1:1")
    assert "secret" not in str(unreachable.value)


class Making(BaseHTTPRequestHandler):
    """Makes a file: answers with these statuses, one after the other, and then hangs up."""

    statuses: ClassVar[list[int]] = []

    def do_GET(self) -> None:
        if not self.statuses:
            return
        self.send_response(self.statuses.pop(0))
        self.send_header("Retry-After", "1")
        self.send_header("ETag", f'"{hashlib.sha256(b"").hexdigest()}"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def making() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Making) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _fetch(server: str, out: Path, *, awaited: bool) -> None:
    if not awaited:
        with Client(server, patience=0.3) as client:
            client.onnx("study", 0, out, patience=10)
        return

    async def work() -> None:
        async with AsyncClient(server, patience=0.3) as client:
            await client.onnx("study", 0, out, patience=10)

    asyncio.run(work())


@pytest.mark.parametrize("awaited", [False, True])
def test_a_server_that_goes_away_is_not_waited_for_as_long_as_a_file(
    making: str, tmp_path: Path, awaited: bool
) -> None:
    Making.statuses[:] = [202]
    began = time.monotonic()
    with pytest.raises(Unreachable, match="no Reflectory server answers"):
        _fetch(making, tmp_path / "model.onnx", awaited=awaited)
    assert time.monotonic() - began < 8


@pytest.mark.parametrize("awaited", [False, True])
def test_a_server_that_is_busy_is_waited_for_as_long_as_a_file(
    making: str, tmp_path: Path, awaited: bool
) -> None:
    Making.statuses[:] = [503, 202, 429, 200, 200]
    _fetch(making, tmp_path / "model.onnx", awaited=awaited)
    assert (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize("failures", [0, 1, 3])
def test_work_is_tried_again_until_it_succeeds(failures: int) -> None:
    tries = itertools.count()

    def work() -> str:
        if next(tries) < failures:
            raise httpx2.ConnectError("away")
        return "done"

    assert again(work, 10) == "done"
    assert next(tries) == failures + 1


def test_work_that_never_succeeds_raises_its_last_fault() -> None:
    tries = itertools.count()

    def work() -> None:
        raise httpx2.ConnectError(f"try {next(tries)}")

    with pytest.raises(httpx2.ConnectError, match=r"try [1-9]"):
        again(work, 0.5)


def test_patience_counts_from_the_first_fault_and_other_errors_are_not_repeated() -> None:
    tries = itertools.count()

    def breaks_late() -> str:
        if next(tries) == 0:
            time.sleep(0.6)
            raise httpx2.ReadError("a long transfer broke")
        return "done"

    assert again(breaks_late, 0.5) == "done"
    with pytest.raises(ZeroDivisionError):
        again(lambda: 1 // (next(tries) - 2), 10)
    assert next(tries) == 3


_LIGHT = {
    "models",
    "models.spec",
    "search",
    "search.documents",
    "models.graphs",
    "models.graphs.documents",
}


@pytest.mark.parametrize("module", ["service.client", "service.cli"])
def test_asking_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}; print(*sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    imported = output.stdout.split()
    heavy = {"torch", "numpy", "optuna", "sqlalchemy", "alembic", "fastapi", "starlette", "sklearn"}
    assert heavy.isdisjoint(imported)
    ours = {name for name in imported if name.split(".")[0] in ("models", "search")}
    assert all(name.startswith("search.documents.") for name in ours - _LIGHT)
