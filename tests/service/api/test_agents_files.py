"""Files of attempts, which their agents get and send with the lease token."""

from starlette.testclient import TestClient

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


def test_another_attempts_token_is_refused(client: TestClient, site: Site) -> None:
    _, lease = running(site)
    _, other = running(site)
    answer = client.get(lease.path("artifacts/resume"), headers=other.headers)
    assert (answer.status_code, answer.headers["content-type"]) == (409, PROBLEM)
    answer = client.put(lease.path("artifacts/resume"), headers=other.headers, content=b"x")
    assert answer.status_code == 409


def test_an_agent_comes_under_the_servers_name_and_no_page_does(
    client: TestClient, site: Site
) -> None:
    _, lease = running(site)
    path = lease.path("artifacts/resume")
    assert client.put(path, headers=lease.headers, content=resume_file(lease.job)).is_success
    elsewhere = {**lease.headers, "Host": "reflectory.example:8080"}
    assert client.get(path, headers=elsewhere).status_code == 403
    page = {**lease.headers, "Origin": "http://evil.example"}
    assert client.get(path, headers=page).status_code == 403
    key = create_key(site.database, name="a machine's", scopes=("work",))
    shown = {**elsewhere, "Authorization": f"Bearer {key.text}"}
    wait_until(lambda: client.get(path, headers=shown).status_code == 200)


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
