"""The events that a study really writes are those that the OpenAPI document describes."""

import json
import signal
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from starlette.testclient import TestClient

from search.training.jobs import Progress
from service.api.events.payloads import EVENTS, DownloadEvent
from tests.service.running import Server, wait_until
from tests.system.faults.test_faults import SMALL
from tests.system.studies.test_paused_trials import SPEC as PAUSING


@pytest.mark.slow
def test_every_event_of_a_study_with_all_its_luck_is_as_documented(tmp_path: Path) -> None:
    """A worker is killed, budget and priority grow, throughput is measured, and trials pause."""
    spec = {**SMALL, "objectives": ["quality", "parameters", "throughput"]}
    server = Server(tmp_path / "data", workers=1)
    try:
        server.start()
        study_id = server.submit({**spec, "budget": {"trials": 1, "epochs": 100}})
        wait_until(lambda: server.study(study_id)["progress"]["epochs_trained"] > 5, what="epochs")
        for worker in server.workers_at_work():
            with suppress(psutil.NoSuchProcess):
                worker.send_signal(signal.SIGKILL)
        steered = {"budget": {"trials": 2}, "priority": 3}
        assert server.http.patch(f"/v1/studies/{study_id}", json=steered).status_code == 200
        server.wait(study_id)
        pausing = server.submit(PAUSING)
        paused = wait_until(
            lambda: [t for t in server.trials(pausing) if t["outcome"] == "paused"],
            what="a paused trial",
        )
        # Whoever names its configuration has it go on.
        names = ("architecture", "parametrization", "hyperparameters")
        wish = {name: paused[0][name] for name in names}
        named = server.http.post(f"/v1/studies/{pausing}/trials", json=wish)
        assert named.status_code == 202, named.text
        server.wait(pausing)
        told = [server.http.get(f"/v1/studies/{one}/events").text for one in (study_id, pausing)]
        lines = "".join(told).splitlines()
    finally:
        server.close()
    kinds = [line.removeprefix("event: ") for line in lines if line.startswith("event:")]
    data = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data:")]
    for kind, payload in zip(kinds, data, strict=True):
        EVENTS[kind].model_validate_json(json.dumps(payload))
    assert {*kinds, "download"} == set(EVENTS)


def test_a_download_is_told_as_workers_tell_it() -> None:
    assert set(DownloadEvent.model_fields) == {"at", *Progress.model_fields}


def test_the_document_describes_the_stream_by_kind(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    answer = document["paths"]["/v1/studies/{study_id}/events"]["get"]["responses"]["200"]
    (content,) = answer["content"].items()
    assert content[0] == "text/event-stream"
    described = {
        event["properties"]["event"]["const"]: event["properties"]["data"]["contentSchema"]["$ref"]
        for event in content[1]["itemSchema"]["oneOf"]
    }
    assert set(described) == set(EVENTS)
    schemas = document["components"]["schemas"]
    for kind, reference in described.items():
        assert f"`{kind}`" in schemas[reference.rsplit("/", 1)[1]]["description"]
