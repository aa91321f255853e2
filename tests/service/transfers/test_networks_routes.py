"""Uploads of ONNX files over HTTP: what is said of them, what is stored, and what is refused."""

import hashlib

import httpx2
import pytest
from starlette.testclient import TestClient

from models.graphs.documents import NetworkFacts
from service.app import create_app
from storage.repositories.uploads import UploadedModels
from tests.models.graphs.reading.graph_files import small
from tests.service.model_files import (
    assert_no_model_is_left,
    model_rows,
    plain,
    saved,
    upload_model,
)
from tests.service.network_files import WEIGHT_BYTES, in_branches, network
from tests.service.site import Site
from tests.service.uploading import files_below, unfinished

CONTENT = network().SerializeToString()


def refused(answer: httpx2.Response, *words: str) -> None:
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert [fault["path"] for fault in problem["errors"]] == ["file"]
    for word in words:
        assert word in problem["detail"], problem["detail"]


def test_a_network_is_described_and_stored_as_it_came(client: TestClient, site: Site) -> None:
    answer = upload_model(client, CONTENT, "vad.onnx")
    assert answer.status_code == 201, answer.text
    model = answer.json()
    digest = hashlib.sha256(CONTENT).hexdigest()
    assert (model["name"], model["source"]) == ("vad.onnx", "onnx")
    assert (model["sha256"], model["file_sha256"]) == (digest, digest)
    assert (model["size_bytes"], model["file_size_bytes"]) == (len(CONTENT), len(CONTENT))
    assert model["parameters"] == 32 * 64 + 64 * 5
    graph = model["graph"]
    assert graph["inputs"] == [{"name": "x", "type": "float32", "shape": ["batch", 32]}]
    assert graph["outputs"] == [{"name": "y", "type": "float32", "shape": ["batch", 5]}]
    assert graph["operators"] == {"MatMul": 2, "Relu": 1}
    assert (graph["opset"], graph["weight_bytes"]) == (17, WEIGHT_BYTES)
    assert model["layers"] == [
        {
            "name": "W",
            "operator": "MatMul",
            "shape": [32, 64],
            "bytes": 4 * 32 * 64,
            "has_structure": True,
            "quantized": False,
        }
    ]
    assert model["kept_because"] is None
    assert client.get(model["links"]["model"]).json() == model
    assert (model_rows(site), unfinished(site)) == ((1, 1), [])
    with site.database.read() as session:
        record = UploadedModels(session).get(model["id"])
    facts = NetworkFacts.model_validate(record.spec)
    assert facts.model_dump(mode="json")["layers"] == model["layers"]


def test_the_file_is_sent_back_under_its_name(client: TestClient) -> None:
    model = upload_model(client, CONTENT, "vad.onnx").json()
    got = client.get(model["links"]["checkpoint"])
    assert got.content == CONTENT
    assert got.headers["ETag"] == f'"{model["sha256"]}"'
    assert f"{model['id']}.onnx" in got.headers["Content-Disposition"]
    part = client.get(model["links"]["checkpoint"], headers={"Range": "bytes=8-15"})
    assert (part.status_code, part.content) == (206, CONTENT[8:16])


def test_both_sorts_are_in_one_list(client: TestClient) -> None:
    first = upload_model(client, saved(plain())).json()
    second = upload_model(client, CONTENT, "vad.onnx").json()
    items = client.get("/v1/models").json()["items"]
    assert [(item["id"], item["source"]) for item in items] == [
        (second["id"], "onnx"),
        (first["id"], "torch"),
    ]
    assert items[0].items() <= second.items()
    assert items[1].items() <= first.items()
    assert "layers" not in items[0]


@pytest.mark.parametrize("name", ["MODEL.ONNX", "model", "model.bin"])
def test_the_name_tells_the_sort_or_else_the_content(client: TestClient, name: str) -> None:
    answer = upload_model(client, CONTENT, name)
    assert (answer.status_code, answer.json()["source"]) == (201, "onnx")
    answer = upload_model(client, saved(plain()), name.removesuffix(".ONNX"))
    assert (answer.status_code, answer.json()["source"]) == (201, "torch")


def test_a_name_that_is_wrong_is_believed(client: TestClient, site: Site) -> None:
    refused(upload_model(client, saved(plain()), "model.onnx"), "no ONNX model")
    refused(upload_model(client, CONTENT, "model.safetensors"), "safetensors")
    assert_no_model_is_left(site)


def test_options_of_a_state_dict_are_refused(client: TestClient, site: Site) -> None:
    answer = upload_model(client, CONTENT, "a.onnx", nonlinearity="relu", output_steps="every")
    refused(answer, "nonlinearity, output_steps")
    assert_no_model_is_left(site)
    # A browser's form sends what nobody chose.
    sent = {"nonlinearity": "", "output_steps": "last", "sequence_length": ""}
    assert upload_model(client, CONTENT, "a.onnx", **sent).status_code == 201


def test_nothing_to_compress_is_refused_with_shares_by_operator(
    client: TestClient, site: Site
) -> None:
    answer = upload_model(client, small().SerializeToString(), "small.onnx")
    refused(answer, "nothing in the network can be compressed", "64 bytes", "100 % read by MatMul")
    assert_no_model_is_left(site)


def test_weights_in_branches_are_taken_for_an_input_may_be_fixed(client: TestClient) -> None:
    answer = upload_model(client, in_branches().SerializeToString(), "branches.onnx")
    assert answer.status_code == 201, answer.text
    model = answer.json()
    assert (model["layers"], model["graph"]["top_level_share"]) == ([], 0)
    assert model["parameters"] == 2 * 32 * 64


def test_the_same_file_is_one_model_and_deleting_takes_it_away(
    client: TestClient, site: Site
) -> None:
    first, again = (upload_model(client, CONTENT, f"{name}.onnx") for name in ("one", "two"))
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert len(files_below(site.settings.artifacts_dir)) == 1
    assert client.delete(first.json()["links"]["model"]).status_code == 204
    assert_no_model_is_left(site)


def test_a_file_above_the_setting_is_refused(tmp_path_factory: pytest.TempPathFactory) -> None:
    site = Site(tmp_path_factory.mktemp("site") / "data", largest_network=1024)
    with TestClient(create_app(site.settings), base_url="http://localhost") as client:
        refused(upload_model(client, CONTENT, "a.onnx"), f"has {len(CONTENT)} bytes", "1024")
    assert_no_model_is_left(site)
    site.close()
