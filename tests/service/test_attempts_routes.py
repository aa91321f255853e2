from starlette.testclient import TestClient

from storage.artifact_rows import ArtifactRows
from storage.records import TrialState
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
    epoch = {"epoch": 1, "train_loss": 1.0, "validation": 0.5, "seconds": 0.1}
    verdict = client.post(lease.path("metrics"), headers=lease.headers, json=epoch).json()
    assert verdict["verdict"] == "continue"
    for role in ("checkpoint", "report"):
        content = f"the {role}".encode() * 1000
        stored = client.put(
            lease.path(f"artifacts/{role}"),
            headers={**lease.headers, "Content-SHA256": sha256(content)},
            content=content,
        )
        assert stored.json() == {"sha256": sha256(content), "size": len(content)}
        back = client.get(lease.path(f"artifacts/{role}"), headers=lease.headers)
        assert back.content == content
    completion = {"outcome": "complete", "quality": 0.5, "best_epoch": 1, "epochs_trained": 1}
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


def test_a_worker_need_not_look_like_the_local_user(client: TestClient, site: Site) -> None:
    _, lease = running(site)
    headers = {**lease.headers, "Host": "reflectory.example:8080"}
    assert client.get(lease.path("job"), headers=headers).status_code == 200


def test_bytes_that_do_not_match_their_digest_are_not_stored(
    client: TestClient, site: Site
) -> None:
    _, lease = running(site)
    headers = {**lease.headers, "Content-SHA256": sha256(b"meant")}
    answer = client.put(lease.path("artifacts/resume"), headers=headers, content=b"sent")
    assert (answer.status_code, answer.headers["content-type"]) == (422, PROBLEM)
    assert client.get(lease.path("artifacts/resume"), headers=lease.headers).status_code == 404


def test_what_takes_the_place_of_stored_bytes_leaves_nothing_of_them(
    client: TestClient, site: Site
) -> None:
    """A trial stores the state to resume from again and again; others may use the same bytes."""
    _, lease = running(site)
    _, other = running(site)

    def put(lease: Lease, content: bytes) -> None:
        path = lease.path("artifacts/resume")
        assert client.put(path, headers=lease.headers, content=content).status_code == 200

    def stored() -> set[str]:
        with site.database.read() as session:
            rows = set(ArtifactRows(session).digests())
        assert set(site.store.digests()) == rows
        return rows

    put(lease, b"first")
    put(other, b"first")
    put(lease, b"second")
    assert stored() == {sha256(b"first"), sha256(b"second")}
    put(other, b"third")
    put(other, b"third")
    assert stored() == {sha256(b"second"), sha256(b"third")}


def test_an_upload_in_pieces_larger_than_memory_keeps_arrives_whole(
    client: TestClient, site: Site
) -> None:
    _, lease = running(site)
    pieces = [bytes([i]) * (1 << 20) for i in range(10)]
    headers = {**lease.headers, "Content-SHA256": sha256(b"".join(pieces))}
    stored = client.put(lease.path("artifacts/resume"), headers=headers, content=iter(pieces))
    assert stored.json()["size"] == 10 << 20
    # What was received on the way leaves nothing beside the store.
    left = {path.name.split(".")[0] for path in site.settings.data_dir.iterdir()}
    assert left == {"artifacts", "reflectory", "secret"}


def test_a_report_that_is_not_a_number_is_refused(client: TestClient, site: Site) -> None:
    _, lease = running(site)
    body = b'{"epoch": 1, "train_loss": NaN, "validation": 0.5, "seconds": 1}'
    headers = {**lease.headers, "Content-Type": "application/json"}
    answer = client.post(lease.path("metrics"), headers=headers, content=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "train_loss"
