"""Uploads of arrays over HTTP: what is said of them, what tasks are given, and what is refused."""

import hashlib
import io

import httpx2
import numpy as np
import pytest
from starlette.testclient import TestClient

from search.documents.datasets import ArrayFacts
from search.errors import DataError
from search.uploads.arrays import stored_arrays
from service.api.datasets.shelf import StoredDatasets
from tests.service.site import SMALL_SPEC, Site
from tests.service.uploading import (
    CSV,
    assert_nothing_is_left,
    good_npz,
    npz,
    rows_of,
    unfinished,
    upload,
)

FRAMES = np.linspace(-1, 1, 4 * 3 * 2, dtype=np.float32).reshape(4, 3, 2)
LENGTHS = np.array([3, 1, 2, 3])
ARRAYS = npz(frames=FRAMES, lengths=LENGTHS)


def refused(answer: httpx2.Response, *words: str, path: str = "file") -> None:
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert [fault["path"] for fault in problem["errors"]] == [path], problem
    for word in words:
        assert word in problem["detail"], problem["detail"]


def test_arrays_are_described_and_kept(client: TestClient, site: Site) -> None:
    answer = upload(client, ARRAYS, "speech.npz", holds="arrays")
    assert answer.status_code == 201, answer.text
    dataset = answer.json()
    assert (dataset["name"], dataset["format"]) == ("speech.npz", "npz")
    assert dataset["options"]["holds"] == "arrays"
    assert dataset["facts"] == {
        "problem": "arrays",
        "samples": 4,
        "arrays": [
            {"name": "frames", "type": "float32", "shape": [3, 2]},
            {"name": "lengths", "type": "int64", "shape": []},
        ],
    }
    assert dataset["preview"] == []
    assert client.get(dataset["links"]["dataset"]).json() == dataset
    assert client.get("/v1/datasets").json()["items"] == [dataset]
    assert (rows_of(site), unfinished(site)) == ((1, 2), [])


def test_the_shelf_gives_networks_the_arrays(client: TestClient, site: Site) -> None:
    dataset = upload(client, ARRAYS, "speech.npz", holds="arrays").json()
    shelf = StoredDatasets(site.database, site.store)
    facts = shelf.arrays(dataset["id"])
    assert isinstance(facts, ArrayFacts)
    assert facts.model_dump(mode="json") == dataset["facts"]
    with shelf.open(dataset["id"]) as stream:
        content = stream.read()
    assert hashlib.sha256(content).hexdigest() == shelf.digest(dataset["id"])
    found = stored_arrays(io.BytesIO(content))
    np.testing.assert_array_equal(found["frames"], FRAMES)
    np.testing.assert_array_equal(found["lengths"], LENGTHS)


def test_the_shelf_tells_arrays_from_samples(client: TestClient, site: Site) -> None:
    shelf = StoredDatasets(site.database, site.store)
    arrays = upload(client, ARRAYS, "speech.npz", holds="arrays").json()["id"]
    samples = upload(client, CSV).json()["id"]
    with pytest.raises(DataError, match='a task "model_outputs" reads'):
        shelf.facts(arrays)
    with pytest.raises(DataError, match='uploaded with holds: "arrays"'):
        shelf.arrays(samples)
    with pytest.raises(DataError, match="no data set 'none'"):
        shelf.arrays("none")


def test_a_study_that_trains_on_arrays_is_refused(client: TestClient) -> None:
    dataset = upload(client, ARRAYS, "speech.npz", holds="arrays").json()
    study = {**SMALL_SPEC, "task": {"kind": "dataset", "id": dataset["id"]}}
    answer = client.post("/v1/studies", json=study)
    refused(answer, "holds arrays for a network's inputs", "model_outputs", path="task.id")


def test_the_same_file_may_hold_both(client: TestClient, site: Site) -> None:
    first, again = (upload(client, good_npz(), "a.npz") for _ in range(2))
    assert (first.status_code, again.status_code) == (201, 200)
    numbers = npz(x=np.ones((3, 2), dtype=np.float32), y=np.array([0, 1, 0]))
    samples = upload(client, numbers, "b.npz", holds="samples").json()
    arrays = upload(client, numbers, "b.npz", holds="arrays").json()
    assert samples["id"] != arrays["id"]
    assert samples["facts"]["problem"] == "classification"
    assert client.delete(samples["links"]["dataset"]).status_code == 204
    assert StoredDatasets(site.database, site.store).arrays(arrays["id"]).samples == 3


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (npz(a=np.ones((3, 1)), b=np.ones((4, 1))), ("'a' has 3 samples and 'b' has 4",)),
        (npz(a=np.ones(())), ("1 to 8 dimensions",)),
        (npz(a=np.ones((0, 2))), ("none may be 0",)),
        (npz(a=np.array(["x", "y"])), ("'a' has elements of type str", "float32")),
        (npz(a=np.array([{}], dtype=object)), ("a holds Python objects",)),
        (npz(a=np.ones(2, dtype=np.complex64)), ("numbers, booleans",)),
        (npz(), ("empty",)),
        (b"PK no archive", ("damaged",)),
        (b"", ("damaged",)),
    ],
)
def test_what_no_network_reads_is_refused(
    client: TestClient, site: Site, content: bytes, words: tuple[str, ...]
) -> None:
    refused(upload(client, content, "a.npz", holds="arrays"), *words)
    assert_nothing_is_left(site)


def test_values_that_are_not_finite_are_taken(client: TestClient) -> None:
    content = npz(a=np.array([np.nan, np.inf, 1.0]))
    assert upload(client, content, "a.npz", holds="arrays").status_code == 201


def test_a_form_that_arrays_do_not_have_is_refused(client: TestClient, site: Site) -> None:
    refused(upload(client, CSV, "data.csv", holds="arrays"), "'data.csv'", "end in .npz")
    answer = upload(client, ARRAYS, "a.npz", holds="arrays", missing="mean")
    assert answer.status_code == 422
    assert "missing says how samples are read" in answer.json()["detail"]
    refused(upload(client, ARRAYS, "a.npz", holds="lists"), "arrays", path="holds")
    files = {"file": ("a.npz", ARRAYS), "test": ("b.npz", ARRAYS)}
    answer = client.post("/v1/datasets", files=files, data={"holds": "arrays"})
    refused(answer, "in one file", path="test")
    assert_nothing_is_left(site)
