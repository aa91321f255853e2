"""Uploads from Python and from the command line, against the real API."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from search.documents.datasets import ArrayFacts, DatasetFacts
from service.client import Client, Refused, Unreachable
from tests.service.listening import listening
from tests.service.relay import Relay
from tests.service.running import command
from tests.service.site import Site
from tests.service.uploading import CSV, TS, assert_nothing_is_left, npz, rows_of, unfinished


@pytest.fixture
def address(site: Site) -> Iterator[tuple[str, int]]:
    with listening(site) as address:
        yield address


@pytest.fixture
def server(address: tuple[str, int]) -> str:
    return f"http://{address[0]}:{address[1]}"


@pytest.fixture
def client(server: str) -> Iterator[Client]:
    with Client(server) as client:
        yield client


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    file = tmp_path / "pets.csv"
    file.write_bytes(CSV)
    return file


def test_an_upload_is_told_of_and_found_again_until_it_is_deleted(
    client: Client, site: Site, pets: Path
) -> None:
    told: list[tuple[int, int | None]] = []
    dataset = client.upload_dataset(pets, told=lambda sent, total: told.append((sent, total)))
    assert dataset.name == "pets.csv"
    assert isinstance(dataset.facts, DatasetFacts)
    assert dataset.facts.classes == ("cat", "dog")
    assert told[-1] == (len(CSV), len(CSV))
    assert client.upload_dataset(pets) == dataset
    assert client.upload_dataset(str(pets)) == dataset
    assert list(client.datasets()) == [dataset]
    assert client.dataset(dataset.id) == dataset
    client.delete_dataset(dataset.id)
    assert_nothing_is_left(site)
    with pytest.raises(Refused, match=dataset.id):
        client.delete_dataset(dataset.id)


def test_options_and_a_test_part_are_sent(client: Client, tmp_path: Path) -> None:
    train, test = tmp_path / "a_TRAIN.ts", tmp_path / "a_TEST.ts"
    train.write_bytes(TS)
    test.write_bytes(TS.replace(b"0.5", b"0.75"))
    told: list[tuple[int, int | None]] = []
    dataset = client.upload_dataset(
        train,
        test,
        name="both parts",
        problem="classification",
        unequal_lengths="pad",
        told=lambda sent, total: told.append((sent, total)),
    )
    assert dataset.name == "both parts"
    assert isinstance(dataset.facts, DatasetFacts)
    assert dataset.facts.samples["test"] == 4
    assert dataset.test_sha256
    total = train.stat().st_size + test.stat().st_size
    assert told[-1] == (total, total)
    assert dataset.options.unequal_lengths == "pad"


def test_a_bad_file_is_refused_with_its_line(client: Client, site: Site, pets: Path) -> None:
    pets.write_bytes(CSV.replace(b"0.2", b"two"))
    with pytest.raises(Refused, match="line 2") as refused:
        client.upload_dataset(pets)
    assert refused.value.problem.status == 422
    assert_nothing_is_left(site)


def test_an_upload_whose_answer_is_lost_is_sent_again_and_stored_once(
    site: Site, address: tuple[str, int], pets: Path
) -> None:
    with Relay(address) as relay, Client(relay.url, patience=20) as client:
        relay.cuts.extend([0, 0])
        dataset = client.upload_dataset(pets)
        assert [found.id for found in client.datasets()] == [dataset.id]
    assert rows_of(site) == (1, 2)
    assert unfinished(site) == []


def test_a_file_over_the_limit_is_refused_with_the_limit(tmp_path: Path) -> None:
    site = Site(tmp_path / "data", largest_upload=1 << 20)
    large = tmp_path / "large.csv"
    large.write_bytes(b"a,1,2\n" * (1 << 20))
    with (
        listening(site) as (host, port),
        Client(f"http://{host}:{port}") as client,
        pytest.raises(Refused, match="1048576"),
    ):
        client.upload_dataset(large)
    assert_nothing_is_left(site)
    site.close()


def test_a_missing_file_is_the_callers_own_fault(client: Client, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        client.upload_dataset(tmp_path / "none.csv")


def test_a_dataset_of_no_server_is_unreachable(pets: Path) -> None:
    with Client("http://127.0.0.1:1", patience=0) as client, pytest.raises(Unreachable):
        client.upload_dataset(pets)


def test_the_command_line_uploads_lists_shows_and_deletes(
    server: str, site: Site, pets: Path
) -> None:
    sent = command(server, "datasets", "upload", pets, "--name", "[bold]pets[/]", "--json")
    assert sent.returncode == 0, sent.stderr
    dataset = json.loads(sent.stdout)
    assert dataset["name"] == "[bold]pets[/]"
    listed = command(server, "datasets", "list")
    assert dataset["id"][:8] in listed.stdout
    assert "[bold]" in listed.stdout, "a name is text, not markup"
    shown = command(server, "datasets", "show", dataset["id"])
    for word in ("classification", "samples of dog", dataset["id"]):
        assert word in shown.stdout
    again = command(server, "datasets", "upload", pets)
    assert f'"id": "{dataset["id"]}"' in again.stdout
    assert json.loads(command(server, "datasets", "list", "--json").stdout) == [dataset]
    gone = command(server, "datasets", "delete", dataset["id"], "--yes")
    assert (gone.returncode, dataset["id"] in gone.stdout) == (0, True)
    assert_nothing_is_left(site)
    assert command(server, "datasets", "list").stdout.strip() == "no data sets"


def test_the_command_line_says_what_is_wrong(server: str, site: Site, tmp_path: Path) -> None:
    ragged = tmp_path / "ragged.ts"
    ragged.write_bytes(TS)
    refused = command(server, "datasets", "upload", ragged)
    assert refused.returncode == 3
    assert "pad" in refused.stderr
    assert (
        command(server, "datasets", "upload", ragged, "--pad", "--problem", "odd").returncode == 2
    )
    assert command(server, "datasets", "upload", tmp_path / "none.csv").returncode == 2
    assert command(server, "datasets", "show", "none").returncode == 3
    assert_nothing_is_left(site)
    assert command(server, "datasets", "upload", ragged, "--pad").returncode == 0


def test_arrays_are_uploaded_listed_and_shown(client: Client, server: str, tmp_path: Path) -> None:
    file = tmp_path / "speech.npz"
    file.write_bytes(npz(frames=np.ones((7, 5, 3), dtype=np.float32), labels=np.arange(7)))
    dataset = client.upload_dataset(file, holds="arrays")
    assert isinstance(dataset.facts, ArrayFacts)
    assert [array.name for array in dataset.facts.arrays] == ["frames", "labels"]
    assert client.dataset(dataset.id) == dataset
    assert list(client.datasets()) == [dataset]
    sent = command(server, "datasets", "upload", file, "--holds", "arrays")
    assert sent.returncode == 0, sent.stderr
    for word in (dataset.id, "float32, 5 × 3 a sample", "model_outputs"):
        assert word in sent.stdout, word
    assert "arrays" in command(server, "datasets", "list").stdout
