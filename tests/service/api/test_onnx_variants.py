"""ONNX files of other kinds than a study's own: made on request, verified, stored beside it."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnxruntime
import pytest
import torch
from starlette.testclient import TestClient

from models import checkpoint
from models.quantization import Bits, round_
from search.exports import MADE_ROLES, outcome
from search.fronts.retention import Retention
from search.tasks import Digits
from search.training.trial_spec import TrialSpec
from service.app import create_app
from service.client import Client, Refused
from service.data_dir.server_file import ServerFile
from storage.records import StudyRecord, TrialRecord
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.trials import Trials
from tests.service.commands.test_cli import reflectory, succeeded
from tests.service.listening import listening
from tests.service.site import Site, sha256

TASK = Digits()
SPACE = {"parametrizations": ["low_rank"], "export": {"form": "node"}}


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    """An application whose first answer is the file."""
    settings = site.settings.model_copy(update={"export_wait_seconds": 120.0})
    with TestClient(create_app(settings), base_url="http://localhost:8080") as client:
        yield client


@pytest.fixture
def study(site: Site) -> StudyRecord:
    return site.study(**SPACE)


def trained(site: Site, study: StudyRecord, number: int) -> None:
    """A trial with all that a worker stores for it."""
    record = site.trial(study, number, quality=0.5 + number, throughput=10.0)
    spec = TrialSpec.model_validate(record.spec).model
    network = spec.build(seed=number)
    if spec.rounded_to is not None:
        round_(network, spec.rounded_to)
    told = TASK.interface(site.sources).model_dump_json()
    content = checkpoint.save_bytes(network, spec, extra={checkpoint.INTERFACE: told})
    samples = TASK.raw_samples(site.sources).to_bytes()
    with site.database.write() as session:
        for role, stored in (("checkpoint", content), ("samples", samples)):
            ArtifactRows(session).link(study.id, number, role, site.keep(stored))


def path_of(study: StudyRecord, number: int = 0) -> str:
    return f"/v1/studies/{study.id}/trials/{number}/onnx"


def row_of(site: Site, study: StudyRecord, number: int = 0) -> TrialRecord:
    with site.database.read() as session:
        return Trials(session).get(study.id, number)


def metadata_of(content: bytes) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load_from_string(content).metadata_props}


def ran(content: bytes, x: torch.Tensor) -> list[torch.Tensor]:
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    return [torch.as_tensor(value) for value in session.run(None, {"input": x.numpy()})]


def test_a_raw_file_is_the_network_alone_and_is_verified_on_the_same_samples(
    client: TestClient, site: Site, study: StudyRecord
) -> None:
    trained(site, study, 0)
    answer = client.get(path_of(study), params={"raw": "true"})
    assert answer.status_code == 200
    assert answer.headers["etag"] == f'"{sha256(answer.content)}"'
    named = f'attachment; filename="{study.id}-0.raw.onnx"'
    assert answer.headers["content-disposition"] == named
    assert "reflectory.preprocessing" not in metadata_of(answer.content)
    stored = client.get(path_of(study).replace("onnx", "checkpoint")).content
    model = checkpoint.load(stored)
    x = model.preprocess(TASK.raw_samples(site.sources).x[:7])
    (found,) = ran(answer.content, x)
    expected = model.module.eval()(x).detach()
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    kept = outcome(row_of(site, study), "onnx.raw")
    assert kept is not None
    assert kept.verification is not None
    assert (kept.verification.inputs, kept.verification.same) == ("validation", 400)
    unchanged = client.get(
        path_of(study), params={"raw": "1"}, headers={"If-None-Match": answer.headers["etag"]}
    )
    assert unchanged.status_code == 304


def test_a_guarded_file_takes_an_empty_batch(
    client: TestClient, site: Site, study: StudyRecord
) -> None:
    trained(site, study, 0)
    content = client.get(path_of(study), params={"guard": "true"}).content
    samples = TASK.raw_samples(site.sources).x
    output, label = ran(content, samples[:0])
    assert (list(output.shape), list(label.shape)) == ([0, 10], [0])
    whole = ran(client.get(path_of(study)).content, samples[:5])
    for found, right in zip(ran(content, samples[:5]), whole, strict=True):
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)


def test_a_form_is_had_that_the_study_does_not_make_and_its_own_file_stays(
    client: TestClient, site: Site, study: StudyRecord
) -> None:
    trained(site, study, 0)
    own = client.get(path_of(study))
    loop = client.get(path_of(study), params={"form": "loop"})
    node = client.get(path_of(study), params={"form": "node"})
    assert metadata_of(own.content)["reflectory.form"] == "node"
    assert metadata_of(loop.content)["reflectory.form"] == "loop"
    assert "Scan" in {node.op_type for node in onnx.load_from_string(loop.content).graph.node}
    assert node.content == own.content, "what the study makes is made once"
    assert set(row_of(site, study).artifacts) - {"report", "checkpoint", "samples"} == {
        "onnx",
        "onnx.loop",
    }
    document = client.get(path_of(study).removesuffix("/onnx")).json()
    assert document["bytes"]["onnx"] == len(own.content)
    assert "onnx.loop" not in {*document["bytes"], *document["missing"]}
    auto = client.get(path_of(study), params={"form": "auto", "raw": "true", "guard": "true"})
    assert auto.status_code == 200
    named = f'attachment; filename="{study.id}-0.raw.guard.auto.onnx"'
    assert auto.headers["content-disposition"] == named


@pytest.mark.parametrize("bits", [8, 4])
def test_integers_go_through_dequantize_linear_where_that_is_asked_for(
    client: TestClient, site: Site, bits: Bits
) -> None:
    study = site.study(**SPACE, space={"hidden_size": 16, "low_rank.d": 2, "bits": bits})
    trained(site, study, 0)
    x = TASK.raw_samples(site.sources).x[:9]
    plain = client.get(path_of(study)).content
    for form, least in (("node", 2), ("loop", 4)):
        wanted = {"quantization": "qdq", "form": form}
        content = client.get(path_of(study), params=wanted).content
        onnx.checker.check_model(content, full_check=True)
        model = onnx.load_from_string(content)
        operators = [node.op_type for node in model.graph.node]
        # Of the input and the readout, and of both factors.
        assert operators.count("DequantizeLinear") >= least
        elements = {tensor.data_type for tensor in model.graph.initializer}
        integer = onnx.TensorProto.INT8 if bits == 8 else onnx.TensorProto.INT4
        assert integer in elements
        assert model.opset_import[0].version == (17 if bits == 8 else 21)
        assert metadata_of(content)["reflectory.quantization"] == "qdq"
        for found, right in zip(ran(content, x), ran(plain, x), strict=True):
            torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5)
    kept = outcome(row_of(site, study), "onnx.loop.qdq")
    assert kept is not None
    assert kept.verification is not None
    assert kept.verification.same == 400


def test_what_cannot_be_is_refused_at_its_query(
    client: TestClient, site: Site, study: StudyRecord
) -> None:
    trained(site, study, 0)
    answer = client.get(path_of(study), params={"quantization": "qdq"})
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {
            "path": "quantization",
            "message": "'qdq' is for models of 8 or 4 bits; this one has 32, and no integers: "
            "allowed is 'none'",
        }
    ]
    for name, value, allowed in (
        ("form", "scan", "'auto', 'node' or 'loop'"),
        ("quantization", "int8", "'none' or 'qdq'"),
        ("raw", "maybe", "boolean"),
        ("guard", "2", "boolean"),
    ):
        answer = client.get(path_of(study), params={name: value})
        assert answer.status_code == 422
        (fault,) = answer.json()["errors"]
        assert fault["path"] == name
        assert allowed in fault["message"]
        assert value in fault["message"]
    assert client.get(path_of(study, 7), params={"quantization": "qdq"}).status_code == 404
    assert set(row_of(site, study).artifacts) == {"report", "checkpoint", "samples"}


def test_they_go_with_their_checkpoint(client: TestClient, site: Site) -> None:
    study = site.study(**SPACE, retention={"keep": "none", "top": 1})
    for number in (0, 1):
        trained(site, study, number)
        assert client.get(path_of(study, number), params={"raw": "true"}).status_code == 200
    site.run(study)
    site.finish(study)
    Retention(site.database, site.store).tidy()
    # Trial 1 is the better one.
    assert set(row_of(site, study, 0).artifacts) == {"report"}
    assert "onnx.raw" in row_of(site, study, 1).artifacts
    assert "onnx.raw" in MADE_ROLES


def test_the_client_and_the_command_line_ask_for_them(site: Site, tmp_path: Path) -> None:
    study = site.study(**SPACE)
    trained(site, study, 0)
    with listening(site) as (host, port), Client(f"http://{host}:{port}") as client:
        out = tmp_path / "model.onnx"
        got = client.onnx(study.id, 0, out, raw=True, form="loop", guard=True)
        assert got.sha256 == sha256(out.read_bytes())
        told = metadata_of(out.read_bytes())
        assert told["reflectory.form"] == "loop"
        assert "reflectory.preprocessing" not in told
        with pytest.raises(Refused, match="8 or 4 bits"):
            client.onnx(study.id, 0, tmp_path / "none.onnx", quantization="qdq")
        assert not (tmp_path / "none.onnx").exists()
        ServerFile(url=f"http://{host}:{port}", pid=os.getpid()).write(site.settings.data_dir)
        place = ("--out", str(tmp_path / "files"))
        asked = ("download", study.id, "0", "--onnx", "--raw", "--form", "loop", "--guard", *place)
        files = json.loads(succeeded(reflectory(site, *asked, "--json")))["files"]
        assert [Path(file).name for file in files] == ["trial-0.onnx"]
        assert Path(files[0]).read_bytes() == out.read_bytes()
        refused = reflectory(site, "download", study.id, "0", "--onnx", "--quantization", "qdq")
        assert refused.returncode == 3
        assert "8 or 4 bits" in refused.stderr
        for wrong in (("--onnx",), ("0", "--raw")):
            assert reflectory(site, "download", study.id, *wrong).returncode == 2
