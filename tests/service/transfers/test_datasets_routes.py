"""Uploads over HTTP: good ones of each format, every kind of bad one, and what stays behind."""

import hashlib
import io
import re
import socket
import threading
import zipfile
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from starlette.testclient import TestClient

from search.errors import DataError
from search.uploads import container
from service.api.datasets.shelf import StoredDatasets
from service.api.uploads.folders import UploadFolders
from service.app import create_app
from storage.records import StudyState
from storage.repositories.studies import Studies
from tests.service.listening import listening
from tests.service.running import wait_until
from tests.service.site import Site, now
from tests.service.uploading import (
    CSV,
    TS,
    TSV,
    assert_nothing_is_left,
    files_below,
    good_npz,
    npz,
    rows_of,
    unfinished,
    upload,
)

PROBLEM = "application/problem+json"


def refused(answer: httpx2.Response, *words: str, path: str = "file") -> None:
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM), answer.text
    problem = answer.json()
    assert [fault["path"] for fault in problem["errors"]] == [path]
    for word in words:
        assert word in problem["detail"], problem["detail"]


def test_a_csv_becomes_a_dataset_with_its_facts(client: TestClient, site: Site) -> None:
    answer = upload(client, CSV, "pets.csv")
    assert answer.status_code == 201, answer.text
    dataset = answer.json()
    assert dataset["name"] == "pets.csv"
    assert dataset["format"] == "csv"
    assert dataset["sha256"] == hashlib.sha256(CSV).hexdigest()
    assert dataset["size_bytes"] == len(CSV)
    facts = dataset["facts"]
    assert facts["problem"] == "classification"
    assert facts["samples"] == {"unassigned": 4}
    assert (facts["steps"], facts["shortest"], facts["features"], facts["outputs"]) == (3, 3, 1, 2)
    assert (facts["classes"], facts["class_counts"]) == (["cat", "dog"], [2, 2])
    assert facts["missing_values"] == 0
    assert dataset["preview"][0]["values"] == [[0.1], [0.2], [0.3]]
    assert dataset["preview"][0]["target"] == "cat"
    assert answer.headers["Location"] == dataset["links"]["dataset"]
    assert client.get(dataset["links"]["dataset"]).json() == dataset
    assert client.get("/v1/datasets").json() == {"items": [dataset], "next_cursor": None}
    assert rows_of(site) == (1, 2)
    assert len(files_below(site.settings.artifacts_dir)) == 2
    assert unfinished(site) == []


@pytest.mark.parametrize(
    ("content", "name", "fields", "expected"),
    [
        (TSV, "a.tsv", {}, {"problem": "classification", "steps": 2, "classes": ["1", "2"]}),
        (TS, "a.ts", {"unequal_lengths": "pad"}, {"steps": 3, "shortest": 2, "features": 2}),
        (good_npz(), "a.NPZ", {}, {"samples": {"train": 3, "validation": 1, "test": 2}}),
        (
            b'\xef\xbb\xbfwhat,"t,0",t1\r\n"a, b",1,2\r\n"c ""d""",3,4\r\n"a, b",5,6\r\n\r\n',
            "bom.csv",
            {},
            {"classes": ["a, b", 'c "d"'], "class_counts": [2, 1], "steps": 2},
        ),
        (CSV, "a.csv", {"label": "t1"}, {"problem": "regression", "steps": 3}),
        (
            b"t,a,b\nx,1,\ny,3,4\nx,?,5\n",
            "gaps.csv",
            {"missing": "mean"},
            {"missing_values": 2},
        ),
        (b"a,b\n1,2\n3,4\n5,6\n", "f.csv", {"problem": "forecasting"}, {"features": 2, "steps": 3}),
    ],
    ids=["tsv", "ts", "npz", "bom", "label", "missing", "forecasting"],
)
def test_every_format_is_read_as_the_options_say(
    client: TestClient, content: bytes, name: str, fields: dict[str, str], expected: dict[str, Any]
) -> None:
    if "label" in fields:
        content = CSV.replace(b"cat", b"7").replace(b"dog", b"8")
    answer = upload(client, content, name, **fields)
    assert answer.status_code == 201, answer.text
    found = answer.json()
    assert expected.items() <= found["facts"].items(), found["facts"]
    assert fields.items() <= found["options"].items()


def test_an_official_test_part_comes_in_a_file_of_its_own(client: TestClient, site: Site) -> None:
    files = {"file": ("train.csv", CSV), "test": ("test.csv", CSV.replace(b"0.1", b"0.7"))}
    answer = client.post("/v1/datasets", files=files)
    assert answer.status_code == 201, answer.text
    dataset = answer.json()
    assert dataset["facts"]["samples"]["test"] == 4
    assert sum(dataset["facts"]["samples"].values()) == 8
    assert dataset["test_sha256"] == hashlib.sha256(files["test"][1]).hexdigest()
    assert dataset["size_bytes"] == 2 * len(CSV)
    assert rows_of(site) == (1, 3)


def object_array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return zipped({"x.npy": stream.getvalue()})


def zipped(entries: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return stream.getvalue()


def zip_bomb() -> bytes:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f4", "fortran_order": False, "shape": (4 << 20, 1, 1)}
    )
    return zipped({"x.npy": header.getvalue() + bytes(16 << 20)})


BAD: dict[str, tuple[Callable[[], bytes], str, dict[str, str], tuple[str, ...]]] = {
    "zip bomb": (zip_bomb, "a.npz", {}, ("zip bomb",)),
    "pickle": (object_array, "a.npz", {}, ("x", "object")),
    "no zip": (lambda: b"not a zip", "a.npz", {}, ("zip",)),
    "nested path": (lambda: zipped({"../x.npy": b""}), "a.npz", {}, ("../x",)),
    "unknown key": (lambda: npz(x=np.ones((3, 2)), q=np.ones(3)), "a.npz", {}, ("q",)),
    "ragged": (lambda: b"l,a,b\nx,1,2\ny,1\n", "a.csv", {}, ("line 3",)),
    "no number": (lambda: b"l,a,b\nx,1,2\ny,1,two\n", "a.csv", {}, ("line 3", "two")),
    "nan": (lambda: b"l,a,b\nx,1,2\ny,nan,2\n", "a.csv", {}, ("missing",)),
    "infinity": (
        lambda: npz(x=np.array([[1.0, np.inf], [1, 2]]), y=np.array([0, 1])),
        "a.npz",
        {},
        ("inf",),
    ),
    "one class": (lambda: b"l,a\nx,1\nx,2\n", "a.csv", {}, ("class",)),
    "absurd labels": (
        lambda: b"\n".join(b"w%d,%d" % (n, n) for n in range(10_001)),
        "a.csv",
        {"problem": "classification"},
        ("10001", "10000"),
    ),
    "no rows": (lambda: b"label,a,b\n", "a.csv", {}, ("row",)),
    "empty": (lambda: b"", "a.csv", {}, ()),
    "semicolons": (lambda: b"l;a;b\nx;1;2\ny;3;4\n", "a.csv", {}, (";",)),
    "unequal lengths": (lambda: TS, "a.ts", {}, ("pad",)),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_a_sentence_and_leaves_nothing(
    client: TestClient, site: Site, name: str
) -> None:
    content, file, fields, words = BAD[name]
    refused(upload(client, content(), file, **fields), *words)
    assert_nothing_is_left(site)


@pytest.mark.parametrize("name", ["data.pkl", "data", "data.csv.exe", ".csv/x"])
def test_a_wrong_suffix_is_refused_with_those_that_are_allowed(
    client: TestClient, site: Site, name: str
) -> None:
    refused(upload(client, CSV, name), ".npz, .csv, .tsv, .ts")
    assert_nothing_is_left(site)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("../../etc/passwd.csv", "passwd.csv"),
        ("..\\..\\windows\\x.csv", "x.csv"),
        ("/abs/olute.csv", "olute.csv"),
        ("wörter ☃ 数据.csv", "wörter ☃ 数据.csv"),
        ("a\r\nSet-Cookie: x=1.csv", "a Set-Cookie: x=1.csv"),
        ("a\u0085and\u202eevil.csv", "a and evil.csv"),
        ('quo"ted.csv', 'quo"ted.csv'),
        ("x" * 5000 + ".csv", "x" * 200),
    ],
    ids=["up", "windows", "absolute", "unicode", "crlf", "control", "quote", "huge"],
)
def test_a_files_name_is_text_and_no_path(
    client: TestClient, site: Site, name: str, shown: str
) -> None:
    answer = upload(client, CSV, name)
    assert answer.status_code == 201, answer.text
    assert answer.json()["name"] == shown
    stored = files_below(site.settings.data_dir / "artifacts")
    assert all(re.fullmatch(r"[0-9a-f]{64}", path.name) for path in stored)
    assert unfinished(site) == []


def test_a_name_can_be_given(client: TestClient) -> None:
    assert upload(client, CSV, name="kitchen / 2024").json()["name"] == "kitchen / 2024"


def form(*parts: tuple[str, bytes], boundary: str = "xyz", end: bool = True) -> bytes:
    """A form's bytes; each part has its `Content-Disposition` parameters and its content."""
    lines = [
        f"--{boundary}\r\nContent-Disposition: form-data; {said}\r\n\r\n".encode() + content
        for said, content in parts
    ]
    return b"\r\n".join([*lines, f"--{boundary}--\r\n".encode() if end else b""])


FILE = 'name="file"; filename="a.csv"'


@pytest.mark.parametrize(
    ("body", "path", "words"),
    [
        (form((FILE, CSV), (FILE, CSV)), "file", "twice"),
        (form(('name="name"', b"x")), "file", "required"),
        (form(('name="file"; filename=""', b"")), "file", "required"),
        (form(('name="file"', CSV)), "file", "no filename"),
        (form((FILE, CSV), ('name="odd"', b"x")), "odd", "allowed are file, test, name, problem"),
        (form((FILE, CSV), ('name="problem"', b"odd")), "problem", "classification"),
        (form((FILE, CSV), ('name="missing"', b"mean"), ('name="missing"', b"x")), "missing", ""),
        (form((FILE, CSV), ('name="label"', b"x" * 5000)), "label", "4096"),
        (form((FILE, CSV), ('name="label"', b"\xff")), "label", "UTF-8"),
        (form((FILE, CSV), ('name="test"; filename="b.tsv"', TSV)), "test", "format"),
        (form((FILE, CSV), end=False), "", "boundary"),
        (b"no form at all", "", "multipart/form-data"),
        (b"", "", "boundary"),
    ],
)
def test_a_wrong_form_is_refused_by_its_part_and_leaves_nothing(
    client: TestClient, site: Site, body: bytes, path: str, words: str
) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=xyz"}
    refused(client.post("/v1/datasets", content=body, headers=headers), words, path=path)
    assert_nothing_is_left(site)


@pytest.mark.parametrize(
    "media_type", ["application/json", "multipart/form-data", "multipart/form-data; boundary="]
)
def test_another_media_type_is_refused(client: TestClient, media_type: str) -> None:
    headers = {"Content-Type": media_type}
    answer = client.post("/v1/datasets", content=form((FILE, CSV)), headers=headers)
    refused(answer, "multipart/form-data", path="")


def test_a_body_that_is_too_large_is_a_413_with_the_limit(site: Site) -> None:
    settings = site.settings.model_copy(update={"largest_upload": 4096})
    body = form((FILE, b"1,2\n" * 2000))
    headers = {"Content-Type": "multipart/form-data; boundary=xyz"}
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        pieces = [body[start : start + 1000] for start in range(0, len(body), 1000)]
        for content in (body, iter(pieces)):
            answer = client.post("/v1/datasets", content=content, headers=headers)
            assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)
            assert "4096" in answer.json()["detail"]
            assert_nothing_is_left(site)
        assert upload(client, CSV).status_code == 201


def test_what_takes_too_long_to_read_is_refused_with_the_limit(site: Site) -> None:
    settings = site.settings.model_copy(update={"upload_seconds": 0.01})
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        refused(upload(client, CSV), "0.01 seconds")
    assert_nothing_is_left(site)


def test_the_same_files_with_the_same_options_are_one_dataset(
    client: TestClient, site: Site
) -> None:
    first = upload(client, CSV, "first.csv")
    again = upload(client, CSV, "again.csv")
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    other = upload(client, CSV, unequal_lengths="pad")
    assert other.status_code == 201
    assert other.json()["id"] != first.json()["id"]
    assert rows_of(site)[0] == 2


def test_uploads_that_race_are_stored_once(site: Site) -> None:
    together = threading.Barrier(4)
    with listening(site) as (host, port):

        def race(_: int) -> httpx2.Response:
            with httpx2.Client(base_url=f"http://{host}:{port}", timeout=600) as client:
                together.wait(300)
                return client.post("/v1/datasets", files={"file": ("a.csv", CSV)})

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(race, range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert rows_of(site) == (1, 2)
    assert len(files_below(site.settings.artifacts_dir)) == 2
    assert unfinished(site) == []


def test_a_client_that_hangs_up_in_the_middle_leaves_nothing(site: Site) -> None:
    with listening(site) as address, socket.create_connection(address) as connection:
        connection.sendall(
            b"POST /v1/datasets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
            b"Content-Type: multipart/form-data; boundary=xyz\r\n\r\n"
            + form((FILE, CSV * 100), end=False)
        )
        wait_until(lambda: unfinished(site), what="an upload that has begun", seconds=20)
        connection.close()
        wait_until(lambda: not unfinished(site), what="its end", seconds=20)
        assert_nothing_is_left(site)
        with httpx2.Client(base_url=f"http://{address[0]}:{address[1]}") as client:
            assert client.post("/v1/datasets", files={"file": ("a.csv", CSV)}).status_code == 201


def test_deleting_takes_row_and_bytes_away(client: TestClient, site: Site) -> None:
    dataset = upload(client, CSV).json()
    path = dataset["links"]["dataset"]
    answer = client.delete(path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert_nothing_is_left(site)
    for gone in (client.get(path), client.delete(path)):
        assert (gone.status_code, gone.headers["content-type"]) == (404, PROBLEM)
        assert dataset["id"] in gone.json()["detail"]
    assert upload(client, CSV).status_code == 201


def test_bytes_that_another_dataset_has_too_stay(client: TestClient, site: Site) -> None:
    first, second = upload(client, CSV).json(), upload(client, CSV, unequal_lengths="pad").json()
    assert client.delete(first["links"]["dataset"]).status_code == 204
    shelf = StoredDatasets(site.database, site.store)
    with shelf.open(second["id"]) as stream:
        assert container.read(stream).x.shape == (4, 3, 1)
    assert client.delete(second["links"]["dataset"]).status_code == 204
    assert_nothing_is_left(site)


def test_a_dataset_that_a_study_uses_is_a_409_until_it_has_ended(
    client: TestClient, site: Site
) -> None:
    dataset = upload(client, CSV).json()
    spec = {"name": "uses it", "task": {"kind": "dataset", "id": dataset["id"]}}
    with site.database.write() as session:
        Studies(session).create(id="user", name="uses it", spec=spec, at=now())
    answer = client.delete(dataset["links"]["dataset"])
    assert (answer.status_code, answer.headers["content-type"]) == (409, PROBLEM)
    assert "'user'" in answer.json()["detail"]
    assert client.get(dataset["links"]["dataset"]).status_code == 200
    with site.database.write() as session:
        Studies(session).set_state("user", StudyState.CANCELLED, at=now())
    assert client.delete(dataset["links"]["dataset"]).status_code == 204


def test_paging_visits_every_dataset_once_newest_first(client: TestClient) -> None:
    ids = [upload(client, CSV + b"cat,1,2,%d\n" % n).json()["id"] for n in range(4)]
    page = client.get("/v1/datasets?limit=3").json()
    rest = client.get("/v1/datasets", params={"cursor": page["next_cursor"]}).json()
    assert [found["id"] for found in page["items"] + rest["items"]] == ids[::-1]
    assert rest["next_cursor"] is None
    assert client.get("/v1/datasets?cursor=@@").status_code == 422


def test_the_shelf_gives_tasks_what_was_read(client: TestClient, site: Site) -> None:
    dataset = upload(client, good_npz(), "a.npz").json()
    shelf = StoredDatasets(site.database, site.store)
    facts = shelf.facts(dataset["id"])
    assert facts.model_dump(mode="json") == dataset["facts"]
    with shelf.open(dataset["id"]) as stream:
        content = stream.read()
    assert hashlib.sha256(content).hexdigest() == shelf.digest(dataset["id"])
    decoded = container.read(io.BytesIO(content))
    assert decoded.facts == facts
    np.testing.assert_array_equal(decoded.x.ravel(), np.arange(48, dtype=np.float32))


def test_the_shelf_names_a_dataset_that_cannot_be_had(client: TestClient, site: Site) -> None:
    shelf = StoredDatasets(site.database, site.store)
    for ask in (shelf.facts, shelf.digest, lambda name: shelf.open(name).__enter__()):
        with pytest.raises(DataError, match="no data set 'none'"):
            ask("none")
    dataset = upload(client, CSV).json()
    site.store.remove(shelf.digest(dataset["id"]))
    with pytest.raises(DataError, match=f"{dataset['id']}.*upload it again"):
        shelf.open(dataset["id"]).__enter__()


def test_the_form_is_in_the_openapi_document(client: TestClient) -> None:
    operation = client.get("/openapi.json").json()["paths"]["/v1/datasets"]["post"]
    schema = operation["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert schema["required"] == ["file"]
    assert {"file", "test", "name", "problem", "label"} <= set(schema["properties"])
    assert {"200", "201", "413", "422"} <= set(operation["responses"])


@pytest.mark.parametrize("name", ["file", "test"])
def test_a_disk_that_is_full_is_answered_507(
    client: TestClient, site: Site, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    opened = UploadFolders.open

    @contextmanager
    def full(self: UploadFolders) -> Generator[Path]:
        with opened(self) as folder:
            (folder / name).symlink_to("/dev/full")
            yield folder

    monkeypatch.setattr(UploadFolders, "open", full)
    answer = client.post("/v1/datasets", files={name: ("a.csv", CSV)})
    assert (answer.status_code, answer.headers["content-type"]) == (507, PROBLEM), answer.text
    assert answer.json()["type"] == "urn:reflectory:store-full"
    assert_nothing_is_left(site)
