"""Uploads of trained models over HTTP: good ones, every kind of bad one, and what stays behind."""

import hashlib
import io
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
import safetensors.torch
import torch
from starlette.testclient import TestClient
from torch import nn

from models import checkpoint
from search.fronts.retention import Retention
from service.app import create_app
from storage.records import StudyState
from storage.repositories.studies import Studies
from tests.service.listening import listening
from tests.service.model_files import (
    assert_no_model_is_left,
    model_rows,
    ours,
    perceptron,
    plain,
    raw,
    saved,
    spec_of,
    state_of,
    tensor,
    upload_model,
)
from tests.service.site import Site, now
from tests.service.uploading import files_below, unfinished

PROBLEM = "application/problem+json"
BATCH = torch.linspace(-2, 2, 2 * 8 * 8).reshape(2, 8, 8)


def refused(answer: httpx2.Response, *words: str, path: str = "file") -> None:
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM), answer.text
    problem = answer.json()
    assert [fault["path"] for fault in problem["errors"]] == [path]
    for word in words:
        assert word in problem["detail"], problem["detail"]


def test_a_state_dict_becomes_a_model_with_its_report(client: TestClient, site: Site) -> None:
    module = plain(nn.GRU, outputs=10)
    content = saved(module)
    answer = upload_model(client, content, "my gru.safetensors")
    assert answer.status_code == 201, answer.text
    model = answer.json()
    assert (model["name"], model["source"], model["notes"]) == ("my gru.safetensors", "torch", [])
    assert model["file_sha256"] == hashlib.sha256(content).hexdigest()
    assert model["file_size_bytes"] == len(content)
    assert model["architecture"]["kind"] == "gru"
    assert model["signature"] == {
        "input_size": 8,
        "sequence_length": None,
        "output_size": 10,
        "output_steps": "last",
        "vocabulary": None,
    }
    assert model["parameters"] == 3 * 6 * (6 + 8 + 1) + 6 + 10 * (6 + 1)
    assert model["totals"]["parameters"] == model["parameters"]
    assert {"recurrent.weight", "readout.bias"} <= {row["name"] for row in model["rows"]}
    assert model["fits"] == [{"task": "digits", "layout": "rows"}]
    assert answer.headers["Location"] == model["links"]["model"]
    assert client.get(model["links"]["model"]).json() == model
    (listed,) = client.get("/v1/models").json()["items"]
    assert listed.items() <= model.items()
    assert model_rows(site) == (1, 1)
    assert unfinished(site) == []


def test_the_stored_checkpoint_computes_what_was_uploaded(client: TestClient) -> None:
    module = plain(nn.LSTM, num_layers=2)
    model = upload_model(client, saved(module)).json()
    got = client.get(model["links"]["checkpoint"])
    assert hashlib.sha256(got.content).hexdigest() == model["sha256"]
    assert len(got.content) == model["size_bytes"]
    loaded = checkpoint.load(got.content)
    torch.testing.assert_close(loaded.module.eval()(BATCH), module(BATCH), rtol=1e-5, atol=1e-6)
    assert got.headers["ETag"] == f'"{model["sha256"]}"'
    assert f"{model['id']}.safetensors" in got.headers["Content-Disposition"]
    part = client.get(model["links"]["checkpoint"], headers={"Range": "bytes=8-15"})
    assert (part.status_code, part.content) == (206, got.content[8:16])
    held = {"If-None-Match": got.headers["ETag"]}
    assert client.get(model["links"]["checkpoint"], headers=held).status_code == 304


def test_options_say_what_a_state_dict_does_not(client: TestClient) -> None:
    answer = upload_model(
        client,
        saved(perceptron()),
        name="digits, flat",
        nonlinearity="relu",
        sequence_length="8",
    )
    assert answer.status_code == 201, answer.text
    model = answer.json()
    assert model["name"] == "digits, flat"
    assert (model["architecture"]["kind"], model["architecture"]["activation"]) == ("mlp", "relu")
    assert model["signature"]["sequence_length"] == 8
    assert {fit["layout"] for fit in model["fits"]} == {"rows", "pixels"}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_numbers_of_another_type_are_converted_and_the_answer_says_so(
    client: TestClient, dtype: torch.dtype
) -> None:
    module = plain(nn.LSTM).to(dtype)
    answer = upload_model(client, saved(module))
    assert answer.status_code == 201, answer.text
    model = answer.json()
    name = str(dtype).removeprefix("torch.")
    assert model["notes"] == [f"numbers of type {name} became float32"]
    stored = checkpoint.load(client.get(model["links"]["checkpoint"]).content).module
    readout = stored.state_dict()["readout.weight"]
    assert readout.dtype == torch.float32
    assert torch.equal(readout, module.readout.weight.detach().float())


def test_a_structured_checkpoint_of_ours_is_folded(client: TestClient) -> None:
    spec = spec_of({"kind": "rnn", "hidden_size": 8}, kind="low_rank", d=2)
    network, content = ours(spec)
    model = upload_model(client, content).json()
    assert model["source"] == "reflectory"
    assert model["notes"] == ["matrices stored as low_rank became plain ones"]
    assert model["parameters"] == spec.dense_twin().parameter_count()
    loaded = checkpoint.load(client.get(model["links"]["checkpoint"]).content)
    torch.testing.assert_close(
        loaded.module.eval()(BATCH), network.eval()(BATCH), rtol=1e-4, atol=1e-5
    )


def pickled() -> bytes:
    stream = io.BytesIO()
    torch.save(plain().state_dict(), stream)
    return stream.getvalue()


def bad(value: float) -> bytes:
    weight = plain().readout.weight.detach().clone()
    weight[1, 2] = value
    return state_of(plain(), readout__weight=weight)


def saved_state(**given: Any) -> dict[str, torch.Tensor]:
    return plain(**given).state_dict()


GRU = saved_state()

BAD: dict[str, tuple[Callable[[], bytes], tuple[str, ...]]] = {
    "pickle": (pickled, ("torch.save", "safetensors.torch.save_file(model.state_dict()")),
    "text": (lambda: b"hello, this is no model at all", ("safetensors",)),
    "empty": (lambda: b"", ("0 bytes",)),
    "truncated": (lambda: saved(plain())[:-5], ("cut off",)),
    "header of 5 GB": (lambda: raw(b"{}", length=5 * 2**30), ("5368709120", "4194304")),
    "negative offsets": (
        lambda: raw({"a": tensor([1], -4, 0)}, bytes(4)),
        ("'a'", "[-4, 0]"),
    ),
    "overlapping": (
        lambda: raw({"a": tensor([2], 0, 8), "b": tensor([2], 4, 12)}, bytes(12)),
        ("overlap",),
    ),
    "a hole": (
        lambda: raw({"a": tensor([1], 0, 4), "b": tensor([1], 8, 12)}, bytes(12)),
        ("'a' and 'b'", "nobody's", "one after the other"),
    ),
    "bytes behind": (
        lambda: raw({"a": tensor([1], 0, 4)}, bytes(9)),
        ("5 bytes", "allowed are none"),
    ),
    "a name twice": (
        lambda: raw(b'{"a": 1, "a": 2}'),
        ("'a' is there twice",),
    ),
    "a name bomb": (
        lambda: state_of(plain(), rnn__weight_hh_l999999999=GRU["rnn.weight_hh_l0"]),
        ("rnn.weight_hh_l999999999",),
    ),
    "a shape without bytes": (
        lambda: raw({"a": tensor([2**40, 2**40], 0, 0)}),
        ("'a'", str(2**82), "gives it 0"),
    ),
    "no numbers": (
        lambda: state_of(plain(), rnn__weight_hh_l0=torch.ones(0, 0)),
        ("rnn.weight_hh_l0", "[0, 0]"),
    ),
    "control characters": (lambda: raw({"a\x00b": tensor([1], 0, 4)}, bytes(4)), ("printable",)),
    "a path for a name": (
        lambda: safetensors.torch.save({"../../etc/passwd": torch.ones(2, 2)}),
        ("../../etc/passwd",),
    ),
    "NaN": (lambda: bad(float("nan")), ("'readout.weight'", "nan", "[1, 2]")),
    "NaN in half precision": (
        lambda: safetensors.torch.save({"a": torch.tensor([1.0, float("nan")]).bfloat16()}),
        ("'a'", "nan", "[1]"),
    ),
    "infinity": (lambda: bad(float("inf")), ("'readout.weight'", "inf", "[1, 2]")),
    "integers": (
        lambda: state_of(plain(), readout__bias=torch.ones(3, dtype=torch.int64)),
        ("'readout.bias'", "'I64'", "F16, BF16, F32, F64"),
    ),
    "a wrong key": (
        lambda: state_of(plain(), attention__query=torch.ones(2, 2, 2)),
        ("attention.query", "nn.RNN"),
    ),
    "a missing key": (
        lambda: state_of(plain(), rnn__weight_ih_l0=None),
        ("rnn.weight_ih_l0 is missing",),
    ),
    "a missing layer": (
        lambda: safetensors.torch.save(
            {n: t for n, t in saved_state(num_layers=3).items() if "_l1" not in n}
        ),
        ("rnn.weight_ih_l1 is missing", "rnn.bias_hh_l1 is missing"),
    ),
    "a missing bias of one layer": (
        lambda: state_of(plain(num_layers=2), rnn__bias_hh_l1=None),
        ("rnn.bias_hh_l1 is missing",),
    ),
    "no bias in one layer alone": (
        lambda: state_of(plain(num_layers=2), rnn__bias_ih_l0=None, rnn__bias_hh_l0=None),
        ("rnn.bias_ih_l0 is missing", "rnn.bias_hh_l0 is missing"),
    ),
    "a gate too many": (
        lambda: state_of(plain(), rnn__weight_hh_l0=torch.ones(30, 6)),
        ("rnn.weight_hh_l0", "[30, 6]", "[3 n, n] of a GRU"),
    ),
    "a missing gate": (
        lambda: state_of(plain(), rnn__weight_hh_l0=GRU["rnn.weight_hh_l0"][:15]),
        ("rnn.weight_hh_l0", "[15, 6]"),
    ),
    "transposed": (
        lambda: state_of(plain(), rnn__weight_hh_l0=GRU["rnn.weight_hh_l0"].T),
        ("rnn.weight_hh_l0", "[6, 18]", "transposed"),
    ),
    "a transposed input matrix": (
        lambda: state_of(plain(), rnn__weight_ih_l0=GRU["rnn.weight_ih_l0"].T),
        ("rnn.weight_ih_l0", "[8, 18]", "transposed", "[18, 8]"),
    ),
    "a wrong shape": (
        lambda: state_of(plain(), rnn__bias_hh_l0=torch.ones(17)),
        ("rnn.bias_hh_l0", "[17]", "[18]"),
    ),
    "a readout of another size": (
        lambda: state_of(plain(), readout__weight=torch.ones(3, 7)),
        ("readout.weight", "[3, 7]", "6"),
    ),
    "no readout": (
        lambda: state_of(plain(), readout__weight=None, readout__bias=None),
        ("readout",),
    ),
    "bidirectional": (
        lambda: saved(plain(nn.LSTM, bidirectional=True)),
        ("bidirectional", "one direction"),
    ),
    "projections": (lambda: saved(plain(nn.LSTM, proj_size=3)), ("proj_size",)),
    "a hidden layer that is no square": (
        lambda: saved(nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 5), nn.Linear(5, 2))),
        ("1.weight [5, 6]", "[n, n]"),
    ),
    "two linear layers": (
        lambda: saved(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))),
        ("at least three",),
    ),
    "a damaged checkpoint": (
        lambda: (
            (content := ours(spec_of({"kind": "rnn", "hidden_size": 8}))[1])[:-1]
            + bytes([content[-1] ^ 1])
        ),
        ("digest",),
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_with_a_sentence_and_leaves_nothing(
    shared: tuple[TestClient, Site], name: str
) -> None:
    client, site = shared
    content, words = BAD[name]
    refused(upload_model(client, content()), *words)
    assert_no_model_is_left(site)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory):
    """One server for all that it refuses."""
    site = Site(tmp_path_factory.mktemp("refusing"))
    here = ("127.0.0.1", 50000)
    app = create_app(site.settings)
    with TestClient(app, base_url="http://localhost:8080", client=here) as client:
        yield client, site
    site.close()


@pytest.mark.parametrize(
    ("fields", "path", "words"),
    [
        ({"nonlinearity": "swish"}, "nonlinearity", "tanh"),
        ({"output_steps": "first"}, "output_steps", "last"),
        ({"sequence_length": "0"}, "sequence_length", "1"),
        ({"sequence_length": "many"}, "sequence_length", "integer"),
        ({"kind": "gru"}, "kind", "allowed are file, name, nonlinearity"),
        ({"nonlinearity": "relu"}, "file", "not that of an GRU"),
    ],
)
def test_a_wrong_field_is_refused_by_its_name(
    shared: tuple[TestClient, Site], fields: dict[str, str], path: str, words: str
) -> None:
    client, site = shared
    refused(upload_model(client, saved(plain()), **fields), words, path=path)
    assert_no_model_is_left(site)


def test_a_form_without_a_file_is_refused(shared: tuple[TestClient, Site]) -> None:
    client, site = shared
    refused(client.post("/v1/models", files={"name": (None, b"x")}), "required")
    assert_no_model_is_left(site)


def test_what_is_too_large_is_refused_with_the_limit(tmp_path: Path) -> None:
    site = Site(tmp_path / "data", largest_upload=4096)
    with TestClient(create_app(site.settings), base_url="http://localhost") as client:
        answer = upload_model(client, saved(plain(num_layers=4)))
        assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)
        assert "4096" in answer.json()["detail"]
        large = site.settings.model_copy(update={"largest_upload": 2**20, "upload_memory": 2**20})
        with TestClient(create_app(large), base_url="http://localhost") as roomy:
            wide = {"rnn.weight_hh_l0": torch.zeros(300, 100)}
            refused(upload_model(roomy, safetensors.torch.save(wide)), "30000", "26214")
    assert_no_model_is_left(site)
    site.close()


def test_the_same_file_with_the_same_options_is_one_model(client: TestClient, site: Site) -> None:
    content = saved(plain(nn.RNN))
    first, again = (upload_model(client, content, f"{n}.safetensors") for n in ("one", "two"))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    other = upload_model(client, content, nonlinearity="relu")
    assert other.status_code == 201
    assert other.json()["id"] != first.json()["id"]
    assert model_rows(site) == (2, 2)


def test_uploads_that_race_are_stored_once(site: Site) -> None:
    content = saved(plain())
    together = threading.Barrier(4)
    with listening(site) as (host, port):

        def race(_: int) -> httpx2.Response:
            with httpx2.Client(base_url=f"http://{host}:{port}", timeout=600) as client:
                together.wait(300)
                return client.post("/v1/models", files={"file": ("a.safetensors", content)})

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(race, range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert model_rows(site) == (1, 1)
    assert len(files_below(site.settings.artifacts_dir)) == 1
    assert unfinished(site) == []


def test_a_models_bytes_stay_after_a_restart_and_a_sweep(site: Site) -> None:
    with TestClient(create_app(site.settings), base_url="http://localhost") as client:
        model = upload_model(client, saved(plain())).json()
    Retention(site.database, site.store).sweep(older_than_seconds=0.0)
    with TestClient(create_app(site.settings), base_url="http://localhost") as client:
        assert client.get(model["links"]["model"]).json() == model
        content = client.get(model["links"]["checkpoint"]).content
    assert hashlib.sha256(content).hexdigest() == model["sha256"]


def test_deleting_takes_row_and_bytes_away(client: TestClient, site: Site) -> None:
    content = saved(plain())
    model = upload_model(client, content).json()
    # The same checkpoint comes of the same numbers in another file.
    again = upload_model(client, saved(plain(), {"format": "pt"})).json()
    assert (again["sha256"], again["file_sha256"]) != (model["sha256"], model["file_sha256"])
    assert again["sha256"] == model["sha256"]
    assert client.delete(again["links"]["model"]).status_code == 204
    assert client.get(model["links"]["checkpoint"]).status_code == 200
    answer = client.delete(model["links"]["model"])
    assert (answer.status_code, answer.content) == (204, b"")
    assert_no_model_is_left(site)
    for path in ("model", "checkpoint"):
        gone = client.get(model["links"][path])
        assert (gone.status_code, gone.headers["content-type"]) == (404, PROBLEM)
        assert model["id"] in gone.json()["detail"]
    assert client.delete(model["links"]["model"]).status_code == 404
    assert upload_model(client, content).status_code == 201


def test_a_model_that_a_study_compresses_is_a_409_until_it_has_ended(
    client: TestClient, site: Site
) -> None:
    model = upload_model(client, saved(plain())).json()
    spec = {"name": "smaller", "task": {"kind": "digits"}, "compress": {"model": model["id"]}}
    with site.database.write() as session:
        Studies(session).create(id="user", name="smaller", spec=spec, at=now())
    answer = client.delete(model["links"]["model"])
    assert (answer.status_code, answer.headers["content-type"]) == (409, PROBLEM)
    assert "'user'" in answer.json()["detail"]
    with site.database.write() as session:
        Studies(session).set_state("user", StudyState.CANCELLED, at=now())
    assert client.delete(model["links"]["model"]).status_code == 204


def test_paging_visits_every_model_once_newest_first(client: TestClient) -> None:
    content = saved(plain(nn.RNN))
    ids = [upload_model(client, content, sequence_length=str(n)).json()["id"] for n in range(1, 5)]
    page = client.get("/v1/models?limit=3").json()
    rest = client.get("/v1/models", params={"cursor": page["next_cursor"]}).json()
    assert [found["id"] for found in page["items"] + rest["items"]] == ids[::-1]
    assert rest["next_cursor"] is None
    assert client.get("/v1/models?cursor=@@").status_code == 422


def test_uploads_and_deletions_are_in_the_audit(client: TestClient) -> None:
    model = upload_model(client, saved(plain())).json()["id"]
    client.delete(f"/v1/models/{model}")
    events = client.get("/v1/audit").json()["items"]
    assert [(event["action"], event["subject"]) for event in events[:2]] == [
        ("model.deleted", model),
        ("model.uploaded", model),
    ]
