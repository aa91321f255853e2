from starlette.testclient import TestClient

from service.app import create_app
from service.auth.api_keys import create_key
from storage.records import TrialState
from storage.repositories.artifact_rows import ArtifactRows
from tests.search.honest_words import files, resume_file
from tests.service.processes import wait_until
from tests.service.site import Lease, Site, sha256

PROBLEM = "application/problem+json"


def running(site: Site) -> tuple[str, Lease]:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    return study.id, site.lease(study, 0)


def test_a_worker_gets_its_job_reports_and_completes(client: TestClient, site: Site) -> None:
    study_id, lease = running(site)
    job = client.get(lease.path("job"), headers=lease.headers).json()
    assert (job["kind"], job["number"]) == ("train", 0)
    for number in (1, 2):
        epoch = {"epoch": number, "train_loss": 1.0, "validation": number / 4, "seconds": 0.1}
        verdict = client.post(lease.path("metrics"), headers=lease.headers, json=epoch).json()
        assert verdict["verdict"] == "continue"
    for role, content in files(lease.job).items():
        stored = client.put(
            lease.path(f"artifacts/{role}"),
            headers={**lease.headers, "Content-SHA256": sha256(content)},
            content=content,
        )
        assert stored.json() == {"sha256": sha256(content), "size": len(content)}
        back = client.get(lease.path(f"artifacts/{role}"), headers=lease.headers)
        assert back.content == content
    completion = {
        "outcome": "complete",
        "quality": 0.5,
        "test_quality": 0.45,
        "test_metrics": {"accuracy": 0.45},
        "best_epoch": 2,
        "epochs_trained": 2,
    }
    for _ in range(2):
        ended = client.post(lease.path("complete"), headers=lease.headers, json=completion)
        assert ended.status_code == 200
    trial = client.get(f"/v1/studies/{study_id}/trials/0").json()
    assert (trial["outcome"], trial["values"]["quality"]) == ("complete", 0.5)
    late = client.post(lease.path("metrics"), headers=lease.headers, json=epoch)
    assert late.status_code == 409


def test_without_a_token_nothing_is_told(client: TestClient, site: Site) -> None:
    _, lease = running(site)
    for headers in ({}, {"Authorization": f"Basic {lease.token}"}):
        answer = client.get(lease.path("job"), headers=headers)
        assert answer.status_code == 401
        assert answer.headers["content-type"] == PROBLEM
        assert answer.headers["www-authenticate"] == "Bearer"


def test_another_attempts_token_is_refused(client: TestClient, site: Site) -> None:
    _, lease = running(site)
    _, other = running(site)
    for call in ("job", "artifacts/resume"):
        answer = client.get(lease.path(call), headers=other.headers)
        assert (answer.status_code, answer.headers["content-type"]) == (409, PROBLEM)
    answer = client.put(lease.path("artifacts/resume"), headers=other.headers, content=b"x")
    assert answer.status_code == 409


def test_a_worker_comes_under_the_servers_name_and_no_page_does(
    client: TestClient, site: Site
) -> None:
    _, lease = running(site)
    elsewhere = {**lease.headers, "Host": "reflectory.example:8080"}
    assert client.get(lease.path("job"), headers=elsewhere).status_code == 403
    page = {**lease.headers, "Origin": "http://evil.example"}
    assert client.get(lease.path("job"), headers=page).status_code == 403
    for named in (
        {"hosts": ("reflectory.example",)},
        {"url": "http://reflectory.example:8080"},
    ):
        settings = site.settings.model_copy(update=named)
        with TestClient(create_app(settings), base_url="http://localhost:8080") as other:
            assert other.get(lease.path("job"), headers=elsewhere).status_code == 200
    create_key(site.database, name="a key", scopes=("read",))
    wait_until(lambda: client.get(lease.path("job"), headers=elsewhere).status_code == 200)


def test_bytes_that_do_not_match_their_digest_are_not_stored(
    client: TestClient, site: Site
) -> None:
    _, lease = running(site)
    headers = {**lease.headers, "Content-SHA256": sha256(b"meant")}
    answer = client.put(lease.path("artifacts/resume"), headers=headers, content=b"sent")
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM)
    assert client.get(lease.path("artifacts/resume"), headers=lease.headers).status_code == 404


def test_a_state_that_was_damaged_in_the_store_is_as_good_as_none(
    client: TestClient, site: Site
) -> None:
    """The worker begins anew instead of failing, and what it stores then is whole."""
    _, lease = running(site)
    path = lease.path("artifacts/resume")
    state = resume_file(lease.job)
    assert client.put(path, headers=lease.headers, content=state).status_code == 200
    digest = sha256(state)
    (site.settings.artifacts_dir / digest[:2] / digest).write_bytes(state[:-1] + b"?")
    assert client.get(path, headers=lease.headers).status_code == 404
    assert client.put(path, headers=lease.headers, content=state).status_code == 200
    assert client.get(path, headers=lease.headers).content == state


def test_what_takes_the_place_of_stored_bytes_leaves_nothing_of_them(
    client: TestClient, site: Site
) -> None:
    """A trial stores the state to resume from again and again; others may use the same bytes."""
    _, lease = running(site)
    _, other = running(site)

    first, second, third = (resume_file(lease.job, seed=seed) for seed in (1, 2, 3))

    def put(lease: Lease, content: bytes) -> None:
        path = lease.path("artifacts/resume")
        assert client.put(path, headers=lease.headers, content=content).status_code == 200

    def stored() -> set[str]:
        with site.database.read() as session:
            rows = set(ArtifactRows(session).digests())
        assert set(site.store.digests()) == rows
        return rows

    put(lease, first)
    put(other, first)
    put(lease, second)
    assert stored() == {sha256(first), sha256(second)}
    put(other, third)
    put(other, third)
    assert stored() == {sha256(second), sha256(third)}


def test_an_upload_in_pieces_larger_than_memory_keeps_arrives_whole(
    client: TestClient, site: Site
) -> None:
    study = site.study(space={"hidden_size": 1700})
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    content = files(lease.job)["checkpoint"]
    assert len(content) > 10 << 20
    pieces = (content[at : at + (1 << 20)] for at in range(0, len(content), 1 << 20))
    headers = {**lease.headers, "Content-SHA256": sha256(content)}
    stored = client.put(lease.path("artifacts/checkpoint"), headers=headers, content=pieces)
    assert stored.json()["size"] == len(content)
    # What was received on the way leaves nothing beside the store.
    left = {path.name.split(".")[0] for path in site.settings.data_dir.iterdir()}
    assert left == {"artifacts", "reflectory"}


def test_a_report_that_is_not_a_number_is_refused(client: TestClient, site: Site) -> None:
    _, lease = running(site)
    body = b'{"epoch": 1, "train_loss": NaN, "validation": 0.5, "seconds": 1}'
    headers = {**lease.headers, "Content-Type": "application/json"}
    answer = client.post(lease.path("metrics"), headers=headers, content=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "train_loss"
