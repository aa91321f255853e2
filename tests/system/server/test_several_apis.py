"""Several API processes behind one address: nobody can tell them from one."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx2
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.service.running import Server, wait_until
from tests.service.site import SMALL_SPEC

APIS = 3
REQUESTS = 40


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "data", workers=0, environment={"REFLECTORY_APIS": str(APIS)})
    yield server.start()
    server.close()


def get(server: Server, path: str) -> httpx2.Response:
    """Over a connection of its own, which any of the processes may take."""
    with httpx2.Client(base_url=server.http.base_url, timeout=300) as http:
        return http.get(path)


def listening(server: Server) -> list[psutil.Process]:
    """The processes that have the server's port open, but for the supervisor itself."""
    port = server.http.base_url.port
    found = []
    for child in psutil.Process(server.pid).children():
        with suppress(psutil.NoSuchProcess):  # it ended since the list was made
            wires = child.net_connections("tcp")
            if any(
                w.laddr and w.laddr.port == port and w.status == psutil.CONN_LISTEN for w in wires
            ):
                found.append(child)
    return found


def asked(server: Server) -> float:
    """How many lists of studies the processes say that they have answered."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(get(server, "/metrics").text)
        for sample in family.samples
        if sample.name == "reflectory_http_requests_total"
        and sample.labels["route"] == "/v1/studies"
        and sample.labels["method"] == "GET"
    )


def test_what_one_process_was_told_all_of_them_know_at_once(server: Server) -> None:
    wait_until(lambda: len(listening(server)) == APIS, what="every API process")
    for count in range(1, 5):
        study_id = server.submit(SMALL_SPEC)
        for _ in range(REQUESTS // 4):
            items = get(server, "/v1/studies").json()["items"]
            assert len(items) == count
            assert items[0]["id"] == study_id
        assert server.http.post(f"/v1/studies/{study_id}/pause").status_code == 200
        states = {get(server, f"/v1/studies/{study_id}").json()["state"] for _ in range(9)}
        assert states == {"paused"}
    # A second later each has told the others what it counted.
    wait_until(lambda: asked(server) == REQUESTS, what="the counts of all processes")
    assert asked(server) == REQUESTS
