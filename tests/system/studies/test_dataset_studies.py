"""Studies of users' own data: from the upload to the front, and who may read it on the way."""

import io
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from starlette.testclient import TestClient

from search.agents.agent_client import AgentLink
from search.studies import states as studies
from search.uploads import container
from storage.records import StudyRecord, StudyState, TrialState
from storage.repositories.attempts import Attempts
from storage.repositories.studies import Studies
from tests.service.listening import listening
from tests.service.running import Server
from tests.service.site import Lease, Site, now, sha256

PROBLEM = "application/problem+json"

SMALL: dict[str, Any] = {
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": 8, "training.learning_rate": 0.01, "training.batch_size": 16},
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 2, "epochs": 40},
    "sampler": {"kind": "random"},
}


def gestures() -> bytes:
    """Two dimensions of 5 to 9 steps, which rise or fall, in the format of the UEA archive."""
    random = np.random.RandomState(0)
    lines = ["@timeStamps false", "@dimensions 2", "@equalLength false"]
    lines += ["@classLabel true down up", "@data"]
    for sample in range(60):
        steps = random.randint(5, 10)
        slope = 1 if sample % 2 else -1
        rows = slope * np.arange(steps) + 0.1 * random.randn(2, steps)
        series = ":".join(",".join(f"{value:.4f}" for value in row) for row in rows)
        lines.append(f"{series}:{'up' if slope > 0 else 'down'}")
    return "\n".join(lines).encode()


def prices() -> bytes:
    """Series of 6 steps, each with one number that is 500 + 40 times their sum."""
    random = np.random.RandomState(1)
    x = random.randn(80, 6, 1).astype(np.float32)
    stream = io.BytesIO()
    np.savez(stream, x=x, y=500 + 40 * x.sum(axis=(1, 2)))
    return stream.getvalue()


def upload(
    http: httpx2.Client | TestClient, content: bytes, name: str, **fields: str
) -> dict[str, Any]:
    answer = http.post("/v1/datasets", files={"file": (name, content)}, data=fields)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def task_of(dataset: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "dataset", "id": dataset["id"]}


def ended_well(server: Server, task: dict[str, Any]) -> tuple[dict[str, Any], list[Any]]:
    study = server.wait(server.submit({**SMALL, "task": task}))
    assert study["state"] == "finished", study
    trials = server.trials(study["id"])
    assert [trial["outcome"] for trial in trials] == ["complete", "complete"], trials
    return study, trials


def test_an_uploaded_ts_file_is_classified(server: Server) -> None:
    dataset = upload(server.http, gestures(), "gestures.ts", unequal_lengths="pad")
    study, trials = ended_well(server, task_of(dataset))
    facts = study["spec"]["task"]["facts"]
    assert facts["samples"] == {"train": 36, "validation": 12, "test": 12}
    assert (facts["steps"], facts["shortest"], facts["outputs"]) == (9, 5, 2)
    front = server.get(f"/v1/studies/{study['id']}/front")
    assert front["objectives"][0]["metric"] == "accuracy"
    best = max(trial["values"]["quality"] for trial in trials)
    assert best > facts["baseline"] + 0.3


def test_an_uploaded_npz_file_is_regressed_in_its_own_unit(server: Server) -> None:
    dataset = upload(server.http, prices(), "prices.npz")
    study, trials = ended_well(server, task_of(dataset))
    front = server.get(f"/v1/studies/{study['id']}/front")
    assert front["objectives"][0]["metric"] == "mse"
    assert front["objectives"][0]["direction"] == "minimize"
    baseline = study["spec"]["task"]["facts"]["baseline"]
    # The sum of six numbers of variance 1, times 40.
    assert baseline == pytest.approx(6 * 40**2, rel=0.5)
    best = min(trials, key=lambda trial: trial["values"]["quality"])
    assert best["values"]["quality"] < baseline / 2
    assert best["test_quality"] < baseline / 2


def study_of(
    client: httpx2.Client | TestClient, site: Site, dataset: dict[str, Any]
) -> StudyRecord:
    answer = client.post("/v1/studies", json={**SMALL, "task": task_of(dataset)})
    assert answer.status_code == 202, answer.text
    with site.database.read() as session:
        return Studies(session).get(answer.json()["id"])


def path_of(lease: Lease, dataset_id: str) -> str:
    return f"/v1/agents/{'a' * 16}/attempts/{lease.attempt}/datasets/{dataset_id}"


def leased(client: httpx2.Client | TestClient, site: Site, dataset: dict[str, Any]) -> Lease:
    study = study_of(client, site, dataset)
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    return site.lease(study, 0)


def test_a_worker_gets_its_own_jobs_upload_with_its_digest(client: TestClient, site: Site) -> None:
    dataset = upload(client, prices(), "prices.npz")
    lease = leased(client, site, dataset)
    path, token = path_of(lease, dataset["id"]), {"Lease-Token": lease.token}
    whole = client.get(path, headers=token)
    assert whole.status_code == 200
    assert whole.headers["content-sha256"] == sha256(whole.content)
    assert container.read(io.BytesIO(whole.content)).facts.problem == "regression"
    headers = {**token, "Range": "bytes=100-", "If-Range": whole.headers["etag"]}
    rest = client.get(path, headers=headers)
    assert (rest.status_code, rest.content) == (206, whole.content[100:])
    assert rest.headers["content-sha256"] == whole.headers["content-sha256"]


def test_a_worker_gets_no_other_upload(client: TestClient, site: Site) -> None:
    own = upload(client, prices(), "prices.npz")
    other = upload(client, gestures(), "gestures.ts", unequal_lengths="pad")
    lease, others = leased(client, site, own), leased(client, site, other)
    for dataset_id in (other["id"], "nothing", "..%2F..%2Fetc"):
        answer = client.get(path_of(lease, dataset_id), headers={"Lease-Token": lease.token})
        assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)
    for token, status in ((None, 422), (others.token, 409), ("x", 409)):
        headers = {} if token is None else {"Lease-Token": token}
        answer = client.get(path_of(lease, own["id"]), headers=headers)
        assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)


def test_a_worker_on_another_task_gets_none(client: TestClient, site: Site) -> None:
    dataset = upload(client, prices(), "prices.npz")
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    answer = client.get(path_of(lease, dataset["id"]), headers={"Lease-Token": lease.token})
    assert answer.status_code == 404


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
def test_an_upload_that_there_is_not_is_a_fault_of_the_spec(client: TestClient, query: str) -> None:
    spec = {**SMALL, "task": {"kind": "dataset", "id": "nothing"}}
    answer = client.post(f"/v1/studies{query}", json=spec)
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM)
    assert [fault["path"] for fault in answer.json()["errors"]] == ["task.id"]
    assert "nothing" in answer.json()["detail"]
    assert client.get("/v1/studies").json()["items"] == []


def test_a_dry_run_knows_the_uploads_shapes_and_believes_no_facts(client: TestClient) -> None:
    small = upload(client, prices(), "prices.npz")
    stored = client.post("/v1/studies", json={**SMALL, "task": task_of(small)}).json()
    dry = client.post("/v1/studies?dry_run=true", json={**SMALL, "task": task_of(small)})
    assert dry.status_code == 200, dry.text
    lie = {**stored["spec"]["task"]}
    lie["facts"] = {**lie["facts"], "outputs": 1000}
    again = client.post("/v1/studies?dry_run=true", json={**SMALL, "task": lie})
    assert again.json() == dry.json()


def test_a_worker_elsewhere_trains_on_what_it_fetched(site: Site, tmp_path: Path) -> None:
    with listening(site) as (host, port):
        url = f"http://{host}:{port}"
        with httpx2.Client(base_url=url) as http, AgentLink(url, "a" * 16, key=None) as agent:
            dataset = upload(http, prices(), "prices.npz")
            lease = leased(http, site, dataset)
            file = tmp_path / "fetched"

            def fetch() -> bool:
                file.touch()
                return agent.get_dataset(lease.attempt, dataset["id"], file, token=lease.token)

            assert fetch()
            assert container.read(file).facts.problem == "regression"
            with site.database.write() as session:
                study_id = Attempts(session).get(lease.attempt).study_id
                studies.enter(session, study_id, StudyState.FINISHED, at=now())
            assert http.delete(f"/v1/datasets/{dataset['id']}").status_code == 204
            assert not fetch()
