"""`reflectory serve` as an operating system sees it: processes, signals, locks, files."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil
import pytest

from tests import preloaded
from tests.service.running import Server, wait_until

ROLES = ("api", "coordinator", "dashboard")
SECRET = "unseen-" + "s" * 32


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that leave it as it was."""
    running = Server(
        tmp_path_factory.mktemp("supervised") / "data",
        workers=1,
        environment={"REFLECTORY_SECRET": SECRET},
    )
    yield running.start()
    running.close()


def child(server: Server, role: str) -> psutil.Process | None:
    for process in psutil.Process(server.pid).children():
        with suppress(psutil.NoSuchProcess):
            if process.cmdline() == ["reflectory", role]:
                return process
    return None


def serve_again(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "service.cli", "serve", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


def test_a_second_server_is_refused_with_the_firsts_pid_and_url(server: Server) -> None:
    run = serve_again("--port", "0", "--data-dir", str(server.data_dir))
    assert run.returncode == 3
    described = json.loads((server.data_dir / "server.json").read_text())
    assert described["pid"] == server.pid
    assert str(server.pid) in run.stderr
    assert described["url"] in run.stderr
    assert server.get("/healthz")["status"] == "alive"


def test_the_server_file_is_its_owners_alone(server: Server) -> None:
    assert (server.data_dir / "server.json").stat().st_mode & 0o777 == 0o600


def test_an_address_that_others_can_reach_is_refused(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        command = [sys.executable, "-m", "service.cli", "serve", "--host", host, "--port", "0"]
        run = subprocess.run(
            [*command, "--data-dir", str(tmp_path / "data")],
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert run.returncode == 3, host
        assert "loopback" in run.stderr
        assert not (tmp_path / "data" / "server.json").exists()


def test_a_port_that_is_taken_is_refused_with_its_number(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        command = [sys.executable, "-m", "service.cli", "serve", "--port", port]
        run = subprocess.run(
            [*command, "--data-dir", str(tmp_path)], capture_output=True, text=True, timeout=600
        )
    assert run.returncode == 3
    assert port in run.stderr
    assert "--port 0" in run.stderr


@pytest.mark.parametrize("role", ROLES)
def test_a_killed_child_is_started_again(server: Server, role: str) -> None:
    wait_until(lambda: _is_well(server), what="a server that is ready, with its dashboard")
    before = wait_until(lambda: child(server, role), what=f"a process for {role}")
    others = {name: child(server, name) for name in ROLES if name != role}
    before.kill()

    def another() -> psutil.Process | None:
        process = child(server, role)
        return process if process is not None and process.pid != before.pid else None

    wait_until(lambda: _is_well(server) and another(), what=f"another process for {role}")
    assert {name: child(server, name) for name in others} == others


def test_a_killed_fork_server_is_forked_again_for_the_next_attempt(server: Server) -> None:
    before = wait_until(lambda: child(server, "fork_server"), what="a fork server")
    before.kill()
    study = server.submit(
        {
            "task": {"kind": "digits"},
            "budget": {"trials": 1, "epochs": 1},
            "objectives": ["quality", "parameters"],
        }
    )
    assert server.wait(study)["state"] == "finished"
    after = child(server, "fork_server")
    assert after is not None
    assert after.pid != before.pid


def test_a_killed_agents_fork_server_ends(server: Server) -> None:
    agent = wait_until(lambda: child(server, "agent"), what="an agent")
    before = wait_until(lambda: child(server, "fork_server"), what="a fork server")
    agent.kill()
    before.wait(300)
    assert wait_until(lambda: child(server, "fork_server"), what="another fork server") != before


def test_what_was_imported_is_shared(server: Server) -> None:
    wait_until(lambda: _is_well(server), what="a server that is ready")
    for role in ("api", "coordinator", "fork_server"):
        process = wait_until(lambda role=role: child(server, role), what=f"a process for {role}")
        told = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
        kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in told}
        assert kilobytes["Private_Dirty"] < kilobytes["Anonymous"] / 2, role


def test_children_have_the_files_that_they_use_and_no_others(server: Server) -> None:
    wait_until(lambda: _is_well(server), what="a server that is ready, with its dashboard")
    listening = _listeners(server)
    for role, count in (("api", 2), ("coordinator", 0), ("dashboard", 1), ("fork_server", 0)):
        process = wait_until(lambda role=role: child(server, role), what=f"a process for {role}")
        folder = Path(f"/proc/{process.pid}/fd")
        links = [os.readlink(entry) for entry in folder.iterdir()]
        assert os.readlink(folder / "0") == os.devnull
        assert not [link for link in links if link.endswith("serve.lock")], role
        assert len({link for link in links if link in listening}) == count, role


def test_attempts_get_no_secret_from_the_fork_server(server: Server) -> None:
    process = wait_until(lambda: child(server, "fork_server"), what="a fork server")
    shown = Path(f"/proc/{process.pid}/environ").read_bytes()
    assert SECRET.encode() not in shown
    assert b"REFLECTORY_SECRET" not in shown


def test_the_dashboard_starts_at_its_first_visit_and_ends_when_nobody_comes(tmp_path: Path) -> None:
    server = Server(
        tmp_path / "data", workers=0, environment={"REFLECTORY_DASHBOARD_IDLE_SECONDS": "1"}
    )

    def told() -> str:
        (part,) = (p for p in server.get("/readyz")["parts"] if p["name"] == "dashboard")
        assert part["ok"]
        return part["message"]

    try:
        server.start()
        for _ in range(2):
            assert child(server, "dashboard") is None
            assert "starts at the next visit" in told()
            answer = server.http.get("/dashboard/")
            assert (answer.status_code, answer.headers["content-type"][:9]) == (200, "text/html")
            wait_until(lambda: child(server, "dashboard") is None, what="the dashboard's end")
            wait_until(lambda: "next visit" in told(), what="word of it")
        assert "is started again" not in server.log.read_text()
        assert server.stop() == 0
    finally:
        server.close()


def _listeners(server: Server) -> set[str]:
    """The sockets on which the supervisor listens, as `/proc` names them."""
    ours = {os.readlink(entry) for entry in Path(f"/proc/{server.pid}/fd").iterdir()}
    by_tcp = psutil.Process(server.pid).net_connections("tcp")
    numbers = [f"/proc/{server.pid}/fd/{one.fd}" for one in by_tcp if one.status == "LISTEN"]
    unix = Path("/proc/net/unix").read_text().splitlines()[1:]
    fields = (line.split(maxsplit=7) for line in unix)
    found = [f"socket:[{entry[6]}]" for entry in fields if entry[3] == "00010000"]
    return {one for one in (*map(os.readlink, numbers), *found) if one in ours}


def _is_well(server: Server) -> bool:
    with suppress(httpx2.TransportError):
        ready = server.http.get("/readyz").status_code == 200
        return ready and server.http.get("/dashboard/").status_code == 200
    return False


def test_requests_wait_while_the_api_starts_again(server: Server) -> None:
    process = wait_until(lambda: child(server, "api"), what="the API's process")
    process.kill()
    process.wait(100)
    # A new connection: the supervisor's socket takes it before there is anyone to answer.
    url = json.loads((server.data_dir / "server.json").read_text())["url"]
    assert httpx2.get(f"{url}/healthz", timeout=600, trust_env=False).status_code == 200


@pytest.mark.slow
def test_nothing_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    with preloaded.cold():
        environment = {"TMPDIR": str(tmp_path)}
        server = Server(tmp_path / "data", workers=1, environment=environment).start()
    try:
        spec = {"task": {"kind": "digits"}, "budget": {"trials": 50, "epochs": 50}}
        server.submit(spec)
        wait_until(server.workers_at_work, what="an attempt at work")
        processes = server.processes()
        assert len(processes) >= 5, "supervisor, API, coordinator, fork server, attempt"
        os.kill(server.pid, signal.SIGKILL)
        assert server.stop() == -signal.SIGKILL
        _, alive = psutil.wait_procs(processes, timeout=300)
        assert alive == []
        assert _mentioning(server.data_dir) == []
        assert list(tmp_path.glob("reflectory-*")) == [], "the coordinator took the folder away"
        server.start()
        assert server.stop() == 0
    finally:
        server.close()


@pytest.mark.parametrize("depth", [0, 100], ids=["short path", "path too long for a socket"])
def test_what_a_killed_server_left_is_gone_after_the_next_start(tmp_path: Path, depth: int) -> None:
    data_dir = tmp_path / ("d" * depth) / "data"
    data_dir.mkdir(parents=True)
    server = Server(data_dir, workers=1, environment={"TMPDIR": str(tmp_path)}).start()

    def folders() -> list[Path]:
        return list(tmp_path.glob("reflectory-*"))

    try:
        # What others made beside it is left alone.
        (tmp_path / "reflectory-chaos").mkdir()
        before = set(folders())
        processes = server.processes()
        server.kill_everything()
        assert set(folders()) == before, "nobody was left to take it away"
        assert not any(process.is_running() for process in processes)
        server.start()
        now = set(folders())
        assert len(before & now) == 1
        assert len(now) == len(before) == 2
        assert server.stop() == 0
        assert folders() == [tmp_path / "reflectory-chaos"]
        assert _mentioning(data_dir) == []
    finally:
        server.close()


def test_sigterm_with_an_open_event_stream_ends_all_in_order(tmp_path: Path) -> None:
    grace = 8
    server = Server(
        tmp_path / "data",
        workers=1,
        environment={"REFLECTORY_SHUTDOWN_GRACE_SECONDS": str(grace), "TMPDIR": str(tmp_path)},
    ).start()
    try:
        study = server.submit({"task": {"kind": "digits"}, "budget": {"trials": 500}})
        processes = server.processes()
        listening = threading.Event()

        def listen() -> None:
            with (
                suppress(httpx2.TransportError),
                server.http.stream("GET", f"/v1/studies/{study}/events") as response,
            ):
                for _ in response.iter_raw():
                    listening.set()

        listener = threading.Thread(target=listen)
        listener.start()
        assert listening.wait(300)
        assert server.stop() == 0
        listener.join(50)
        assert not listener.is_alive()
        _, alive = psutil.wait_procs(processes, timeout=grace)
        assert alive == []
        assert not (server.data_dir / "server.json").exists()
        assert list(tmp_path.glob("reflectory-*")) == [], "the sockets' folder is gone"
    finally:
        server.close()


def _mentioning(folder: Path) -> list[psutil.Process]:
    """Processes whose arguments or environment name the folder."""
    found: list[psutil.Process] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError, psutil.NoSuchProcess):
            told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            if str(folder).encode() in told:
                found.append(psutil.Process(int(entry.name)))
    return found


@pytest.mark.slow
@pytest.mark.cold
def test_a_server_that_says_it_is_ready_answers_at_all_that_it_names(tmp_path: Path) -> None:
    """What the announcement names can be opened at once."""
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "0", "--json"]
    command += ["--data-dir", str(tmp_path / "data")]
    with (
        (tmp_path / "serve.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as server,
    ):
        try:
            assert server.stdout is not None
            url = json.loads(server.stdout.readline())["url"]
            for page in ("/readyz", "/", "/dashboard"):
                assert httpx2.get(f"{url}{page}", timeout=600).status_code == 200, page
        finally:
            server.terminate()
            assert server.wait(timeout=600) == 0
    assert "the dashboard is away" not in (tmp_path / "serve.log").read_text()
