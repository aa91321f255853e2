"""The Unix socket by which a server's own attempts come in."""

import socket
import stat
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import httpx2
import pytest

from search.agents.agent_client import AgentLink
from search.agents.api_client import api_client, unix_url
from search.agents.protocol import Join
from service.auth.listeners import (
    LONGEST_SOCKET_PATH,
    SocketIsTaken,
    own_socket,
    serves_attempts,
    unix_listener,
)
from service.processes.executors import own_api_url, wants_own_agent
from service.settings import Settings
from tests.service.processes import running_api
from tests.service.running import Server, wait_until
from tests.service.site import Site

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": 16},
    "budget": {"trials": 2, "epochs": 1},
}


MACHINE = {
    "machine": "4f1d2c3b5a697887",
    "name": "ada",
    "session": "0a1b2c3d4e5f6071",
    "slots": [{"name": "cpu-0", "device": "cpu", "model": "a CPU", "share": 1.0}],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    running = Server(tmp_path_factory.mktemp("own") / "data", workers=1)
    yield running.start()
    running.close()


def socket_of(server: Server) -> Path:
    return server.data_dir / "run" / "api.sock"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_its_user_reaches_the_socket(server: Server) -> None:
    assert mode(socket_of(server).parent) == 0o700
    assert mode(socket_of(server)) == 0o600


def test_a_study_trains_on_the_servers_own_machine(server: Server) -> None:
    study = server.submit(SPEC)
    assert server.wait(study)["state"] == "finished"
    assert [trial["outcome"] for trial in server.trials(study)] == ["complete", "complete"]
    assert server.http.get(f"/v1/studies/{study}/trials/0/log").status_code == 200


def test_a_machine_whose_attempts_would_not_be_served_is_not_let_in(server: Server) -> None:
    join = {**MACHINE, "version": version("reflectory")}
    refused = server.http.post("/v1/agents", json=join)
    assert refused.status_code == 403
    assert "REFLECTORY_PUBLIC_ATTEMPTS=true" in refused.json()["detail"]
    assert [one["id"] for one in server.get("/v1/agents")["items"]] != [join["machine"]]


def test_attempts_go_on_over_the_same_socket_when_the_api_starts_again(server: Server) -> None:
    inode = socket_of(server).stat().st_ino
    api = next(one for one in server.processes() if "api" in one.cmdline())
    api.kill()
    api.wait(300)
    with api_client(unix_url(socket_of(server)), "", timeout=600) as http:
        # It waits in the socket, which the supervisor holds, until somebody answers.
        assert http.get("/healthz").status_code == 200
    assert socket_of(server).stat().st_ino == inode


def test_the_socket_serves_attempts_and_a_probe_and_nothing_else(server: Server) -> None:
    with api_client(unix_url(socket_of(server)), "", timeout=600) as http:
        assert http.get("/healthz").status_code == 200
        assert http.post("/v1/agents/nobody/poll", json={}).status_code == 422
        for path in ("/", "/v1/studies", "/metrics", "/v1/keys", "/login"):
            assert http.get(path).status_code in (403, 404), path


def test_a_socket_that_a_killed_server_left_is_replaced(tmp_path: Path) -> None:
    server = Server(tmp_path / "data", workers=0).start()
    try:
        # A folder that somebody made before, for all to read.
        server.kill_everything()
        assert socket_of(server).is_socket()
        socket_of(server).parent.chmod(0o755)
        server.start()
        assert mode(socket_of(server).parent) == 0o700
        with api_client(unix_url(socket_of(server)), "", timeout=600) as http:
            assert http.get("/healthz").status_code == 200
        assert server.stop() == 0
        assert not socket_of(server).exists()
    finally:
        server.close()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, True),
        ({"workers": 0}, False),
        ({"workers": 0, "slots_per_gpu": 4}, True),
        ({"workers": 2, "executor": "ray"}, False),
        ({"slots_per_gpu": 4, "executor": "ray"}, False),
    ],
)
def test_a_server_works_with_its_gpus_alone_where_their_slots_are_named(
    given: dict[str, Any], wanted: bool
) -> None:
    assert wants_own_agent(Settings(**given)) is wanted


def test_a_server_of_gpus_alone_is_not_ready_without_one_and_serves_other_machines(
    tmp_path: Path,
) -> None:
    none = {"REFLECTORY_SLOTS_PER_GPU": "2", "CUDA_VISIBLE_DEVICES": ""}
    server = Server(tmp_path / "data", workers=0, environment=none)
    server.launch()
    try:
        wait_until(lambda: "this machine has no GPU" in server.log.read_text(), what="a warning")
        wait_until(lambda: server.answers("/healthz") == 200, what="an answer")
        assert server.answers("/readyz") == 503
        assert server.get("/v1/agents")["items"] == []
        assert server.stop() == 0
    finally:
        server.close()


def test_a_deep_data_directory_has_its_socket_elsewhere(tmp_path: Path) -> None:
    deep = tmp_path / ("deep" * 20) / ("er" * 20) / "data"
    deep.mkdir(parents=True)
    server = Server(deep, workers=1, environment={"TMPDIR": "/tmp"}).start()
    try:
        assert not socket_of(server).exists()
        study = server.submit({**SPEC, "budget": {"trials": 1, "epochs": 1}})
        assert server.wait(study)["state"] == "finished"
    finally:
        server.close()


def test_a_path_is_used_up_to_the_kernels_limit(tmp_path: Path) -> None:
    short = tmp_path / "s"
    end = len("/run/api.sock")
    fits = tmp_path / ("d" * (LONGEST_SOCKET_PATH - len(str(tmp_path)) - 1 - end))
    longer = fits.with_name(fits.name + "d")
    assert own_socket(fits, short) == fits / "run" / "api.sock"
    assert own_socket(longer, short) == short / "api.sock"
    with unix_listener(own_socket(fits, short)) as listener:
        assert listener.getsockname() == str(fits / "run" / "api.sock")


def test_a_socket_has_one_listener(tmp_path: Path) -> None:
    path = tmp_path / "run" / "api.sock"
    with unix_listener(path):
        assert mode(path.parent) == 0o700
        with (
            pytest.raises(SocketIsTaken, match=r"another process listens on .*api\.sock"),
            unix_listener(path),
        ):
            pass
        assert path.is_socket(), "the one that was there before stays"
    assert not path.exists()


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "api.sock"
    path.write_text("a file of the user's")
    with (
        pytest.raises(Exception, match=r"cannot listen on the socket .*api\.sock"),
        unix_listener(path),
    ):
        pass
    assert path.read_text() == "a file of the user's"


def test_an_api_alone_listens_on_the_socket_that_its_settings_name(site: Site) -> None:
    path = site.settings.data_dir / "a socket %41.sock"
    settings = site.settings.model_copy(update={"attempts_socket": path})
    url = own_api_url(settings)
    join = Join.model_validate({**MACHINE, "version": version("reflectory")})
    with running_api(settings) as api, AgentLink(url, join.machine, key=None) as link:
        assert link.join(join).name == "ada"
        # A second process over the same data directory leaves the socket to the first.
        with running_api(settings.model_copy(update={"log_level": "INFO"})) as other:
            assert httpx2.get(f"{other.url}/healthz").status_code == 200
            assert link.join(join).name == "ada"
        assert link.join(join).name == "ada"
        assert httpx2.get(f"{api.url}/healthz").status_code == 200
    assert not path.exists() or not _listens(path)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


@pytest.mark.parametrize(
    ("given", "has_keys", "served"),
    [
        ({}, False, True),
        ({"attempts_socket": "/s"}, False, False),
        ({"attempts_socket": "/s"}, True, True),
        ({"attempts_socket": "/s", "executor": "inline"}, False, False),
        ({"attempts_socket": "/s", "executor": "ray"}, False, True),
        ({"attempts_socket": "/s", "host": "0.0.0.0"}, True, True),
        ({"attempts_socket": "/s", "public_attempts": True}, False, True),
        ({"attempts_socket": "/s", "public_attempts": False}, True, False),
    ],
)
def test_attempts_are_served_in_public_only_where_others_may_come(
    tmp_path: Path, given: dict[str, Any], has_keys: bool, served: bool
) -> None:
    settings = Settings(data_dir=tmp_path, **given)
    assert serves_attempts(settings, has_keys=has_keys) is served


def test_an_agent_of_the_same_machine_comes_by_the_socket(tmp_path: Path) -> None:
    given: dict[str, Any] = {"data_dir": tmp_path, "url": "http://10.0.0.1:8080"}
    assert own_api_url(Settings(**given)) == "http://10.0.0.1:8080"
    socket = tmp_path / "a b.sock"
    assert own_api_url(Settings(**given, attempts_socket=socket)) == f"unix://{tmp_path}/a%20b.sock"
