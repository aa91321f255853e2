"""Uploaded models from Python and from the command line, against the real API."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from models import checkpoint
from service.api.models.schemas import ModelDetail, NetworkDetail
from service.client import Client, Refused
from tests.service.listening import listening
from tests.service.model_files import (
    assert_no_model_is_left,
    model_rows,
    perceptron,
    plain,
    saved,
    written,
)
from tests.service.network_files import network
from tests.service.relay import Relay
from tests.service.running import command
from tests.service.site import Site
from tests.service.uploading import unfinished


@pytest.fixture
def address(site: Site) -> Iterator[tuple[str, int]]:
    with listening(site) as address:
        yield address


@pytest.fixture
def server(address: tuple[str, int]) -> str:
    return f"http://{address[0]}:{address[1]}"


def test_an_upload_is_told_of_downloaded_and_found_again_until_it_is_deleted(
    server: str, site: Site, tmp_path: Path
) -> None:
    file = written(tmp_path / "gru.safetensors", saved(plain(nn.GRU, outputs=10)))
    told: list[tuple[int, int | None]] = []
    with Client(server) as client:
        model = client.upload_model(file, told=lambda sent, total: told.append((sent, total)))
        size = file.stat().st_size
        assert told[-1] == (size, size)
        assert (model.name, model.source) == ("gru.safetensors", "torch")
        assert isinstance(model, ModelDetail)
        assert [(fit.task, fit.layout) for fit in model.fits] == [("digits", "rows")]
        assert client.upload_model(file) == model
        assert client.upload_model(str(file)) == model
        assert [found.id for found in client.models()] == [model.id]
        assert client.model(model.id) == model
        got = client.download_model(model.id, tmp_path / "back.safetensors")
        assert got.sha256 == model.sha256
        assert checkpoint.load(got.path).spec.architecture.kind == "gru"
        again = client.download_model(model.id, str(tmp_path / "again.safetensors"))
        assert again.path.read_bytes() == got.path.read_bytes()
        client.delete_model(model.id)
        assert_no_model_is_left(site)
        with pytest.raises(Refused, match=model.id):
            client.delete_model(model.id)


def test_options_are_sent(server: str, tmp_path: Path) -> None:
    file = written(tmp_path / "flat.safetensors", saved(perceptron()))
    with Client(server) as client:
        model = client.upload_model(
            file, name="flat", nonlinearity="abs", output_steps="last", sequence_length=8
        )
        assert isinstance(model, ModelDetail)
        assert (model.name, model.signature.sequence_length) == ("flat", 8)
        assert model.architecture["activation"] == "abs"
        with pytest.raises(Refused, match="multiple of sequence_length = 7") as refused:
            client.upload_model(file, sequence_length=7)
    assert refused.value.problem.status == 422


def test_an_upload_whose_answer_is_lost_is_sent_again_and_stored_once(
    site: Site, address: tuple[str, int], tmp_path: Path
) -> None:
    file = written(tmp_path / "gru.safetensors", saved(plain()))
    with Relay(address) as relay, Client(relay.url, patience=20) as client:
        relay.cuts.extend([0, 0])
        model = client.upload_model(file)
        assert [found.id for found in client.models()] == [model.id]
    assert model_rows(site) == (1, 1)
    assert unfinished(site) == []


def test_the_command_line_uploads_lists_shows_downloads_and_deletes(
    server: str, site: Site, tmp_path: Path
) -> None:
    file = written(tmp_path / "rnn.safetensors", saved(plain(nn.RNN)))
    sent = command(
        server,
        "models",
        "upload",
        file,
        "--name",
        "[bold]rnn[/]",
        "--nonlinearity",
        "relu",
        "--json",
    )
    assert sent.returncode == 0, sent.stderr
    model = json.loads(sent.stdout)
    assert (model["name"], model["architecture"]["activation"]) == ("[bold]rnn[/]", "relu")
    listed = command(server, "models", "list")
    assert model["id"][:8] in listed.stdout
    assert "[bold]" in listed.stdout, "a name is text, not markup"
    shown = command(server, "models", "show", model["id"])
    for word in ("readout.weight", "hidden_size", model["id"]):
        assert word in shown.stdout
    got = command(server, "models", "download", model["id"], "--out", tmp_path / "back.safetensors")
    assert got.returncode == 0, got.stderr
    assert checkpoint.load(tmp_path / "back.safetensors").spec.architecture.kind == "rnn"
    gone = command(server, "models", "delete", model["id"], "--yes")
    assert (gone.returncode, model["id"] in gone.stdout) == (0, True)
    assert_no_model_is_left(site)


def test_the_command_line_says_what_is_wrong(server: str, site: Site, tmp_path: Path) -> None:
    wide = written(tmp_path / "both.safetensors", saved(plain(nn.GRU, bidirectional=True)))
    refused = command(server, "models", "upload", wide)
    assert refused.returncode == 3
    assert "bidirectional" in refused.stderr
    assert command(server, "models", "upload", wide, "--nonlinearity", "odd").returncode == 2
    assert_no_model_is_left(site)


def test_a_network_goes_both_ways(server: str, site: Site, tmp_path: Path) -> None:
    content = network().SerializeToString()
    file = written(tmp_path / "vad.onnx", content)
    with Client(server) as client:
        model = client.upload_model(file)
        assert isinstance(model, NetworkDetail)
        assert [layer.name for layer in model.layers] == ["W"]
        assert client.model(model.id) == model
        (listed,) = client.models()
        assert (listed.id, listed.source) == (model.id, "onnx")
        got = client.download_model(model.id, tmp_path / "back.onnx")
        assert (got.sha256, got.path.read_bytes()) == (model.sha256, content)
    sent = command(server, "models", "upload", file)
    assert sent.returncode == 0, sent.stderr
    for word in ("an ONNX file", "batch × 32", "MatMul 2, Relu 1", "32 × 64", "86.5 %"):
        assert word in sent.stdout, word
    assert "opset 17" in command(server, "models", "list").stdout
    assert model.id in command(server, "models", "show", model.id).stdout
    assert command(server, "models", "delete", model.id, "--yes").returncode == 0
    assert_no_model_is_left(site)
