"""Files of trials that know their task: verified on its samples, or missing for a reason."""

from collections.abc import Iterator
from typing import Any

import onnxruntime
import pytest
import torch
from starlette.testclient import TestClient

from models import checkpoint
from models.interface import Classes
from search.documents.export_kinds import ONNX
from search.exports import outcome
from search.tasks import Digits
from search.training.trial_spec import TrialSpec
from service.app import create_app
from storage.records import StudyRecord, TrialRecord, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.trials import Trials
from tests.service.site import Site

TASK = Digits()


@pytest.fixture
def client(site: Site) -> Iterator[TestClient]:
    """An application whose first answer is the file."""
    settings = site.settings.model_copy(update={"export_wait_seconds": 120.0})
    with TestClient(create_app(settings), base_url="http://localhost:8080") as client:
        yield client


@pytest.fixture
def study(site: Site) -> StudyRecord:
    return site.study()


def trained(site: Site, study: StudyRecord, number: int, *, interface: Any = None) -> TrialRecord:
    """A trial with all that a worker stores for it."""
    record = site.trial(study, number, quality=0.5, throughput=10.0)
    spec = TrialSpec.model_validate(record.spec).model
    told = (interface or TASK.interface(site.sources)).model_dump_json()
    content = checkpoint.save_bytes(
        spec.build(seed=number), spec, extra={checkpoint.INTERFACE: told}
    )
    samples = TASK.raw_samples(site.sources).to_bytes()
    with site.database.write() as session:
        for role, stored in (("checkpoint", content), ("samples", samples)):
            ArtifactRows(session).link(study.id, number, role, site.keep(stored))
    return record


def row_of(site: Site, study: StudyRecord, number: int) -> TrialRecord:
    with site.database.read() as session:
        return Trials(session).get(study.id, number)


def test_a_file_reads_raw_samples_and_tells_how_it_was_verified(
    client: TestClient, site: Site, study: StudyRecord
) -> None:
    trained(site, study, 0)
    answer = client.get(f"/v1/studies/{study.id}/trials/0/onnx")
    assert answer.status_code == 200
    session = onnxruntime.InferenceSession(answer.content, providers=["CPUExecutionProvider"])
    samples = TASK.raw_samples(site.sources)
    output, label = map(torch.as_tensor, session.run(None, {"input": samples.x.numpy()}))
    assert samples.x.max() == 16
    stored = client.get(f"/v1/studies/{study.id}/trials/0/checkpoint").content
    model = checkpoint.load(stored)
    with torch.no_grad():
        reply = model.postprocess(model.module.eval()(model.preprocess(samples.x)))
    assert reply.label is not None
    assert torch.equal(label, reply.label)
    torch.testing.assert_close(output, reply.numbers, rtol=1e-4, atol=1e-5)
    kept = outcome(row_of(site, study, 0), ONNX)
    assert kept is not None
    assert kept.verification is not None
    assert kept.verification.inputs == "validation"
    assert (kept.verification.samples, kept.verification.same) == (400, 400)
    told = session.get_modelmeta().custom_metadata_map
    assert told["reflectory.verified"] == "validation 000400"
    right = float((reply.label == samples.y).double().mean())
    assert kept.verification.value == pytest.approx(right, abs=1e-9)
    assert "onnx" not in client.get(f"/v1/studies/{study.id}/trials/0").json()["missing"]


def test_a_trial_of_an_earlier_program_has_its_file_as_before(
    client: TestClient, site: Site, study: StudyRecord
) -> None:
    site.trial(study, 0, quality=0.5, throughput=10.0)
    answer = client.get(f"/v1/studies/{study.id}/trials/0/onnx")
    assert answer.status_code == 200
    session = onnxruntime.InferenceSession(answer.content, providers=["CPUExecutionProvider"])
    assert [value.name for value in session.get_outputs()] == ["output"]
    kept = outcome(row_of(site, study, 0), ONNX)
    assert kept is not None
    assert kept.verification is not None
    assert (kept.verification.inputs, kept.verification.samples) == ("random", 0)


def test_a_file_that_failed_is_missing_for_its_reason_and_is_not_tried_again(
    client: TestClient, site: Site, study: StudyRecord
) -> None:
    trained(site, study, 0)
    path = f"/v1/studies/{study.id}/trials/0"
    sound = client.get(f"{path}/checkpoint").content
    model = checkpoint.load(sound)
    with torch.no_grad():
        model.module.get_parameter("readout.bias").fill_(torch.nan)
    broken = checkpoint.save_bytes(model.module, model.spec, extra=model.metadata)
    link(site, study, broken)
    assert "it is made when it is first asked for" in client.get(path).json()["missing"]["onnx"]
    first = client.get(f"{path}/onnx")
    assert first.status_code == 500
    reason = client.get(path).json()["missing"]["onnx"]
    assert reason == first.json()["detail"]
    point = client.get(f"/v1/studies/{study.id}/front").json()["points"][0]
    assert point["missing"]["onnx"] == reason
    # Its bytes are gone: whoever tried again would say that, and not what was found before.
    site.store.remove(row_of(site, study, 0).artifacts["checkpoint"])
    assert client.get(f"{path}/onnx").json()["detail"] == reason
    link(site, study, sound)
    assert client.get(f"{path}/onnx").status_code == 200
    assert "onnx" not in client.get(path).json()["missing"]


def link(site: Site, study: StudyRecord, content: bytes) -> None:
    with site.database.write() as session:
        ArtifactRows(session).link(study.id, 0, "checkpoint", site.keep(content))


def test_every_null_link_has_a_reason(client: TestClient, site: Site) -> None:
    study = site.study(space={"hidden_size": 8, "rnn.activation": "leaky_relu"})
    trained(site, study, 0)
    site.trial(study, 1, state=TrialState.RUNNING)
    site.trial(study, 2, state=TrialState.INFEASIBLE)
    for number, expected in ((0, "made when"), (1, "is running"), (2, "is infeasible")):
        trial = client.get(f"/v1/studies/{study.id}/trials/{number}").json()
        null = {role for role in ("checkpoint", "onnx", "dense") if trial["links"][role] is None}
        assert trial["missing"].keys() & {"checkpoint", "onnx", "dense"} == null
        assert expected in trial["missing"]["onnx"]
    reason = client.get(f"/v1/studies/{study.id}/trials/0").json()["missing"]["dense"]
    assert "activation = 'leaky_relu' is not offered by nn.RNN" in reason


def test_classes_without_names_are_numbers(
    client: TestClient, site: Site, study: StudyRecord
) -> None:
    unnamed = TASK.interface(site.sources).model_copy(update={"answer": Classes(classes=())})
    trained(site, study, 0, interface=unnamed)
    answer = client.get(f"/v1/studies/{study.id}/trials/0/onnx")
    assert answer.status_code == 200
