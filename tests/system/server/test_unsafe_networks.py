"""Hostile ONNX files at a real server: each a sentence, and the server goes on as before."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.models.graphs.reading.altered_graphs import altered
from tests.search.uploads.upload_cases import mutations
from tests.service.network_files import HOSTILE, network
from tests.service.running import Server
from tests.service.uploading import files_below

ENOUGH = {"REFLECTORY_UPLOAD_SECONDS": "5"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("unsafe") / "data", workers=0, environment=ENOUGH)
    try:
        yield server.start()
    finally:
        server.close()


def sent(server: Server, content: bytes, name: str = "network.onnx") -> httpx2.Response:
    return server.http.post("/v1/models", files={"file": (name, content)})


def left(server: Server) -> list[Path]:
    """What uploads have written to the disk."""
    return [
        path for name in ("artifacts", "uploads") for path in files_below(server.data_dir / name)
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_and_nothing_is_left(server: Server, name: str) -> None:
    content, sentence = HOSTILE[name]
    answer = sent(server, content)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert [fault["path"] for fault in problem["errors"]] == ["file"]
    assert sentence in problem["errors"][0]["message"]
    assert "/etc/passwd" not in answer.text
    assert left(server) == []
    assert server.get("/v1/models")["items"] == []


def test_the_files_are_as_small_as_they_are_said_to_be() -> None:
    assert len(HOSTILE["40 GB"][0]) < 200
    assert len(HOSTILE["a loop for ever"][0]) < 300


CHANGED = st.one_of(mutations(network().SerializeToString()), altered(network()))


@seed(20)
@settings(
    max_examples=12,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow],
)
@given(CHANGED)
def test_any_bytes_are_a_model_or_a_sentence_and_never_a_fault(
    server: Server, content: bytes
) -> None:
    answer = sent(server, content)
    assert answer.status_code in (200, 201, 422), answer.text
    if answer.status_code != 422:
        model = answer.json()
        assert server.get(model["links"]["model"]) == model
        assert server.http.get(model["links"]["page"]).status_code == 200
        assert server.http.delete(model["links"]["model"]).status_code == 204
    assert left(server) == []


def test_the_server_still_takes_a_good_file(server: Server) -> None:
    answer = sent(server, network().SerializeToString())
    assert answer.status_code == 201, answer.text
    assert server.http.delete(answer.json()["links"]["model"]).status_code == 204
    assert left(server) == []
