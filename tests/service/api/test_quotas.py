"""Quotas of tenants: what is refused, with what words, and what goes on beside it."""

import json
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio import to_thread
from starlette.testclient import TestClient
from typer.testing import CliRunner

from search.fronts.retention import Retention
from search.running.store_watch import StoreWatch
from search.studies.commands import pause
from service.api.uploads.turns import UploadTurns
from service.app import create_app
from service.auth.api_keys import create_key
from service.cli import application
from service.client import Client, Refused
from service.settings import QuotaSettings, Settings
from storage.accounts.quotas import Quotas
from storage.engine import Database
from storage.errors import QuotaReached, StoredBytesReached, TooManyAtOnce
from storage.records import LOCAL, StudyState, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies
from storage.tenant_quota import QUOTA_NAMES, TenantQuota
from tests.search.honest_words import resume_file
from tests.service.listening import listening
from tests.service.machines import beat
from tests.service.model_files import plain, saved
from tests.service.pages.test_form_pages import send
from tests.service.running import wait_until
from tests.service.site import SMALL_SPEC, Site
from tests.service.uploading import CSV
from tests.storage.records import add_study

NAMED = {"architecture": "rnn", "parametrization": "dense"}


def serving(site: Site, **limits: int | None) -> TestClient:
    """The API over the site, with quotas."""
    settings = site.settings.model_copy(update={"quotas": QuotaSettings(**limits)})
    return TestClient(create_app(settings), base_url="http://localhost:8080")


@contextmanager
def at_url(site: Site, **limits: int | None) -> Generator[str]:
    """The same on a port, for streams and clients."""
    site.settings = site.settings.model_copy(update={"quotas": QuotaSettings(**limits)})
    with listening(site) as (host, port):
        yield f"http://{host}:{port}"


def reached(answer: httpx2.Response, status: int, quota: str, used: int, limit: int) -> None:
    """It is the problem that tells of a quota, and nothing else."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:reflectory:quota"
    assert {name: problem[name] for name in ("quota", "used", "limit")} == {
        "quota": quota,
        "used": used,
        "limit": limit,
    }
    assert quota in problem["detail"]
    assert str(limit) in problem["detail"]


def override(site: Site, tenant: str, **limits: int | float | None) -> None:
    with site.database.write() as session:
        Quotas(session).override(tenant, limits)


def test_studies_in_progress_are_so_many_and_ended_ones_do_not_count(site: Site) -> None:
    with serving(site, studies=2) as client:

        def submit(**headers: str) -> httpx2.Response:
            return client.post("/v1/studies", json=SMALL_SPEC, headers=headers)

        first, second = submit(), submit(**{"Idempotency-Key": "once"})
        assert (first.status_code, second.status_code) == (202, 202)
        reached(submit(), 409, "studies", 2, 2)
        again = submit(**{"Idempotency-Key": "once"})
        assert (again.status_code, again.json()["id"]) == (202, second.json()["id"])
        assert client.post("/v1/studies?dry_run=true", json=SMALL_SPEC).status_code == 200
        with site.database.read() as session:
            study = Studies(session).get(first.json()["id"])
            assert len(Studies(session).ids()) == 2, "what was refused left no row"
        site.finish(study)
        assert submit().status_code == 202
        # One that has ended and is to run on counts as well.
        longer = client.patch(f"/v1/studies/{study.id}", json={"budget": {"trials": 9}})
        reached(longer, 409, "studies", 2, 2)
        assert client.get(f"/v1/studies/{study.id}").json()["state"] == "finished"
        assert 'reflectory_quota_refusals_total{quota="studies"} 2.0' in client.get("/metrics").text


def test_the_form_for_a_study_says_which_quota_is_reached(site: Site) -> None:
    with serving(site, studies=0) as client:
        page = send(client, "start")
    assert page.status_code == 422
    assert "quota studies: the tenant has 0 of 0" in page.text


def test_two_processes_let_in_no_more_than_one(database: Database) -> None:
    """The same transaction counts and adds, on SQLite and on PostgreSQL."""
    with database.write() as session:
        Quotas(session).override("ours", {"studies": 5})

    def submit(number: int) -> bool:
        try:
            with database.of("ours").write() as session:
                add_study(session, id=f"study-{number}")
                Quotas(session).make_room("studies", is_added=True)
        except QuotaReached:
            return False
        return True

    with ThreadPoolExecutor(12) as threads:
        assert sum(threads.map(submit, range(24))) == 5
    with database.read() as session:
        assert Quotas(session).used("studies", "ours") == 5


def test_trials_that_users_ask_for_wait_up_to_a_number(site: Site) -> None:
    study, other = site.study(), site.study()
    site.run(study)
    site.run(other)
    site.trial(study, 0, state=TrialState.QUEUED)
    site.trial(study, 1, state=TrialState.RUNNING)
    with serving(site, queued_trials=3) as client:

        def enqueue(study_id: str, **headers: str) -> httpx2.Response:
            return client.post(f"/v1/studies/{study_id}/trials", json=NAMED, headers=headers)

        once = {"Idempotency-Key": "once"}
        assert enqueue(study.id).status_code == 202
        assert enqueue(other.id, **once).status_code == 202
        reached(enqueue(other.id), 409, "queued_trials", 3, 3)
        assert enqueue(other.id, **once).status_code == 202
        quota = client.get("/v1/quota").json()["items"]["queued_trials"]
        assert quota == {"limit": 3, "used": 3, "unit": "trials"}
        site.finish(other, StudyState.CANCELLED)
        assert enqueue(study.id).status_code == 202


def test_uploads_are_held_against_stored_bytes_before_they_are_taken(site: Site) -> None:
    body = CSV + b"cat,1,1,1\n" * 2000
    with serving(site) as client:
        taken = client.post("/v1/datasets", files={"file": ("a.csv", CSV)}).json()
        used = client.get("/v1/quota").json()["items"]["stored_bytes"]["used"]
        assert used > len(CSV)
    with serving(site, stored_bytes=used + len(body) // 2) as client:
        large = client.post("/v1/datasets", files={"file": ("b.csv", body)})
        reached(large, 507, "stored_bytes", used, used + len(body) // 2)

        def pieces() -> Iterator[bytes]:
            request = client.build_request("POST", "/v1/datasets", files={"file": ("b.csv", body)})
            sent = request.read()
            headers["Content-Type"] = request.headers["Content-Type"]
            yield from (sent[start : start + 4096] for start in range(0, len(sent), 4096))

        headers: dict[str, str] = {}
        arriving = list(pieces())
        undeclared = client.post("/v1/datasets", content=iter(arriving), headers=headers)
        assert undeclared.status_code == 507, undeclared.text
        assert undeclared.json()["quota"] == "stored_bytes"
        page = client.post(
            "/datasets",
            files={"file": ("b.csv", body)},
            headers={"Origin": "http://localhost:8080"},
        )
        assert "quota stored_bytes" in page.text
        assert list(site.settings.uploads_dir.iterdir()) == []
        # The same again is no more than there is.
        assert client.post("/v1/datasets", files={"file": ("a.csv", CSV)}).status_code == 200
        assert client.get("/v1/datasets").json()["items"][0]["id"] == taken["id"]
    with serving(site, stored_bytes=used + len(CSV) + 20) as client:
        # Its bytes fit, and what it is read into does not fit beside them.
        other = client.post("/v1/datasets", files={"file": ("c.csv", CSV + b"cat,1,1,1\n")})
        assert other.status_code == 507, other.text
        model = {"file": ("gru.safetensors", saved(plain(outputs=10)))}
        assert client.post("/v1/models", files=model).status_code == 507
        assert client.delete(f"/v1/datasets/{taken['id']}").status_code == 204
        quota = client.get("/v1/quota").json()["items"]["stored_bytes"]
        assert quota["used"] == 0
    with site.database.read() as session:
        assert ArtifactRows(session).digests() == []


def test_stored_bytes_are_those_that_the_tenants_rows_name_each_once(site: Site) -> None:
    study = site.study(tenant="ours")
    site.trial(study, 0, quality=0.5)
    site.trial(study, 2, quality=0.5)
    site.trial(site.study(tenant="theirs"), 0, quality=0.5)
    with site.database.read() as session:
        named = [ArtifactRows(session).of_trial(study.id, number) for number in (0, 2)]
        sizes = {one.sha256: one.size for trial in named for one in trial.values()}
        assert len(sizes) < sum(len(trial) for trial in named), "two trials name the same bytes"
        quotas = Quotas(session)
        assert quotas.used("stored_bytes", "ours") == sum(sizes.values())
        assert quotas.used("stored_bytes", "nobody") == 0
    with site.database.of("ours").read() as session:
        assert Quotas(session).used("stored_bytes", "ours") == sum(sizes.values())


def test_a_trial_over_stored_bytes_is_put_off_and_its_study_waits(site: Site) -> None:
    ours, theirs = site.study(tenant="ours"), site.study(tenant="theirs")
    held, done = site.study(tenant="ours"), site.study(tenant="ours")
    for study in (ours, theirs, held, done):
        site.run(study)
        site.trial(study, 0, state=TrialState.RUNNING)
    pause(site.database, held.id, by="a user")
    site.finish(done)
    lease = site.lease(ours, 0)
    watch = StoreWatch(site.database, site.store, owner="here")

    def states() -> list[StudyState]:
        watch.look()
        with site.database.read() as session:
            return [Studies(session).get(one.id).state for one in (ours, theirs, held, done)]

    before = states()
    with serving(site) as client:

        def put(content: bytes) -> httpx2.Response:
            path = lease.path("artifacts/resume")
            return client.put(path, content=content, headers=lease.headers)

        small, large = resume_file(lease.job), resume_file(lease.job, kept_bytes=500)
        most = len(small) + 1
        override(site, "ours", stored_bytes=most)
        assert put(small).status_code == 200
        assert states() == before
        # What is stored last may go over: what there is tells whether more is taken.
        assert put(large).status_code == 200
        reached(put(small), 507, "stored_bytes", len(large), most)
        assert states() == [StudyState.PAUSED, *before[1:]]
        with site.database.read() as session:
            reason = Studies(session).get(ours.id).state_reason or ""
            kept = ArtifactRows(session).of_trial(ours.id, 0)["resume"]
        assert kept.size == len(large), "nothing is lost"
        assert reason.startswith("quota stored_bytes")
        assert f"{len(large)} of {most}" in reason
        assert beat(client, lease) == []
        assert states() == [StudyState.PAUSED, *before[1:]], "it stays so"
        override(site, "ours", stored_bytes=2 * len(large))
        assert states() == before
        assert put(small).status_code == 200
    Retention(site.database, site.store).sweep(older_than_seconds=0.0)
    with site.database.read() as session:
        named = ArtifactRows(session).digests()
    assert {*site.store.digests(older_than_seconds=0.0)} == {*named}


def test_streams_are_limited_by_tenant_and_key_and_freed_when_their_reader_leaves(
    site: Site,
) -> None:
    study = site.study(tenant="ours")
    site.run(study)
    keys = [create_key(site.database.of("ours"), name=n, scopes=("read",)).text for n in "abc"]
    theirs = site.study(tenant="theirs")
    other = create_key(site.database.of("theirs"), name="d", scopes=("read",)).text
    with (
        at_url(site, streams=3, streams_per_key=2) as url,
        httpx2.Client(base_url=url, timeout=600) as http,
    ):

        def listen(key: str, one: str = study.id) -> httpx2.Response:
            stream = http.stream(
                "GET", f"/v1/studies/{one}/events", headers={"Authorization": f"Bearer {key}"}
            )
            opened.append(stack.enter_context(stream))
            answer = opened[-1]
            if answer.status_code == 200:
                # With its first event it is counted; a reader that is dropped would close it.
                readers.append(answer.iter_raw())
                next(readers[-1])
            else:
                answer.read()
            return answer

        def used(key: str) -> dict[str, int]:
            answer = http.get("/v1/quota", headers={"Authorization": f"Bearer {key}"}).json()
            return {name: item["used"] for name, item in answer["items"].items()}

        with ExitStack() as stack:
            opened: list[httpx2.Response] = []
            readers: list[Iterator[bytes]] = []
            assert [listen(keys[0]).status_code for _ in range(2)] == [200, 200]
            reached(listen(keys[0]), 429, "streams_per_key", 2, 2)
            assert opened[-1].headers["Retry-After"]
            assert listen(keys[1]).status_code == 200
            reached(listen(keys[2]), 429, "streams", 3, 3)
            assert listen(other, theirs.id).status_code == 200
            assert (used(keys[0])["streams"], used(keys[0])["streams_per_key"]) == (3, 2)
            opened[0].close()
            wait_until(lambda: used(keys[0])["streams"] == 2, what="a stream less")
            site.event(study)
            assert listen(keys[2]).status_code == 200
        wait_until(lambda: used(keys[0])["streams"] == 0, what="no stream any more")


def test_requests_are_counted_for_all_keys_of_a_tenant_together(site: Site) -> None:
    keys = [create_key(site.database.of("ours"), name=n, scopes=("read",)).text for n in "ab"]
    other = create_key(site.database.of("theirs"), name="c", scopes=("read",)).text
    override(site, "ours", requests_per_minute=6)
    with serving(site) as client:

        def ask(key: str) -> httpx2.Response:
            return client.get("/v1/quota", headers={"Authorization": f"Bearer {key}"})

        answers = [ask(keys[number % 2]) for number in range(6)]
        assert [answer.status_code for answer in answers] == [200] * 6
        assert answers[-1].json()["items"]["requests_per_minute"]["used"] >= 5
        refused = ask(keys[0])
        reached(refused, 429, "requests_per_minute", 6, 6)
        assert int(refused.headers["Retry-After"]) >= 1
        assert ask(other).status_code == 200
        shown = client.get("/metrics", headers={"Authorization": f"Bearer {other}"}).text
        assert 'reflectory_quota_refusals_total{quota="requests_per_minute"} 1.0' in shown
        assert "ours" not in shown


def test_an_operator_sets_quotas_that_the_tenant_sees(site: Site) -> None:
    folder = str(site.settings.data_dir)

    def run(*words: str) -> Any:
        done = CliRunner().invoke(application, ["quota", *words, "--data-dir", folder])
        assert done.exit_code == 0, done.output
        return done.stdout

    assert "settings say" in run("list")
    set_for = json.loads(
        run("set", "ours", "--slots", "4", "--weight", "2", "--uploads", "unlimited", "--json")
    )
    assert (set_for["slots"], set_for["weight"], set_for["uploads"]) == (4, 2.0, None)
    run("set", "ours", "--slots", "3", "--uploads", "default")
    assert json.loads(run("list", "--json")) == [{"tenant": "ours", "slots": 3, "weight": 2.0}]
    assert "ours: slots 3, weight 2" in run("list")
    for wrong in (
        *(["--slots", "-1"], ["--slots", "many"], ["--slots", "9" * 5000]),
        *(["--weight", "0"], ["--weight", "nan"]),
    ):
        refused = CliRunner().invoke(
            application, ["quota", "set", "ours", *wrong, "--data-dir", folder]
        )
        assert refused.exit_code == 2, refused.output
    key = create_key(site.database.of("ours"), name="k", scopes=("read",)).text
    with at_url(site) as url, Client(url, key=key) as client:
        quota = client.quota()
        assert (quota.tenant, quota.weight, quota.items["slots"].limit) == ("ours", 2.0, 3)
        assert set(quota.items) == set(QUOTA_NAMES)
        shown = CliRunner().invoke(
            application, ["quota", "--server", url], env={"REFLECTORY_KEY": key}
        )
        assert shown.exit_code == 0, shown.output
        assert "tenant ours, weight 2" in shown.output
        assert "unlimited" in shown.output


def test_the_client_reads_which_quota_it_was(site: Site) -> None:
    with (
        at_url(site, studies=0) as url,
        Client(url) as client,
        pytest.raises(Refused) as refused,
    ):
        client.submit(SMALL_SPEC)
    problem = refused.value.problem
    assert (problem.quota, problem.used, problem.limit) == ("studies", 0, 0)


def test_quotas_of_the_settings_reach_every_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFLECTORY_QUOTAS", '{"slots": 4, "studies": null}')
    settings = Settings(data_dir=tmp_path)
    record = settings.quotas.record
    assert (record.slots, record.studies, record.uploads) == (4, None, 8)
    assert record.limit("slots") == 4
    monkeypatch.setenv("REFLECTORY_QUOTAS", settings.quotas.model_dump_json())
    assert Settings().quotas == settings.quotas
    monkeypatch.setenv("REFLECTORY_QUOTAS", '{"slotz": 4}')
    with pytest.raises(ValueError, match="slotz"):
        Settings()


def test_one_person_notices_no_quota(site: Site) -> None:
    with serving(site) as client:
        quota = client.get("/v1/quota").json()
    assert (quota["tenant"], quota["weight"]) == (LOCAL, 1.0)
    assert quota["items"]["slots"]["limit"] is None
    assert quota["items"]["stored_bytes"]["limit"] is None
    assert quota["items"]["studies"]["limit"] >= 1000


def turns(script: Any) -> list[str]:
    """What a script of tenants' uploads did, on two readers."""
    order: list[str] = []
    anyio.run(script, UploadTurns(2), order)
    return order


def test_no_tenant_has_both_readers_while_another_waits() -> None:
    async def script(uploads: UploadTurns, order: list[str]) -> None:
        gates: dict[str, anyio.Event] = {}

        def work(name: str) -> None:
            order.append(name)
            anyio.from_thread.run(gates[name].wait)

        async def upload(tenant: str, name: str) -> None:
            gates[name] = anyio.Event()
            await uploads.read(tenant, work, name)

        async def begun(count: int) -> None:
            while len(order) < count:
                await anyio.sleep(0.005)

        async with anyio.create_task_group() as group:
            for name in ("a1", "a2", "a3", "a4"):
                group.start_soon(upload, "a", name)
                await anyio.wait_all_tasks_blocked()
            await begun(2)
            group.start_soon(upload, "b", "b1")
            group.start_soon(upload, "b", "b2")
            await anyio.wait_all_tasks_blocked()
            gates["a1"].set()
            await begun(3)
            # b has one and a has one; the next goes to whoever has waited longer.
            gates["b1"].set()
            await begun(4)
            for gate in list(gates.values()):
                gate.set()

    order = turns(script)
    assert order[:3] == ["a1", "a2", "b1"]
    assert order[3] == "b2", "a has one reader already"
    assert sorted(order) == ["a1", "a2", "a3", "a4", "b1", "b2"]


def test_an_upload_whose_client_leaves_gives_its_turn_on() -> None:
    async def script(uploads: UploadTurns, order: list[str]) -> None:
        gate = anyio.Event()

        def hold(name: str) -> None:
            order.append(name)
            anyio.from_thread.run(gate.wait)

        async with anyio.create_task_group() as group:
            group.start_soon(uploads.read, "a", hold, "a1")
            group.start_soon(uploads.read, "a", hold, "a2")
            while len(order) < 2:
                await anyio.sleep(0.005)
            with anyio.move_on_after(0.05):
                await uploads.read("b", order.append, "nobody")
            gate.set()
        await uploads.read("b", order.append, "b1")
        await uploads.read("b", order.append, "b2")

    assert sorted(turns(script)) == ["a1", "a2", "b1", "b2"]


def test_uploads_under_way_are_counted_with_their_bytes() -> None:
    uploads = UploadTurns(2)
    quota = TenantQuota(uploads=2, stored_bytes=100)
    with uploads.one_more("a", quota, declared=40, stored=10) as one:
        with uploads.one_more("a", quota, declared=0, stored=10) as other:
            assert (uploads.under_way("a"), uploads.bytes_under_way("a")) == (2, 40)
            with pytest.raises(TooManyAtOnce) as many:
                uploads.one_more("a", quota, declared=1, stored=10).__enter__()
            assert (many.value.used, many.value.limit) == (2, 2)
            one.take(40)
            other.take(50)
            with pytest.raises(StoredBytesReached) as full:
                other.take(1)
            assert (full.value.used, full.value.limit) == (50, 100)
            uploads.one_more("b", quota, declared=90, stored=0).__enter__()
        with (
            pytest.raises(StoredBytesReached),
            uploads.one_more("a", quota, declared=51, stored=10),
        ):
            pass
    assert (uploads.under_way("a"), uploads.bytes_under_way("a")) == (0, 0)


def test_the_same_reader_is_not_lost_to_work_that_fails() -> None:
    async def script(uploads: UploadTurns, order: list[str]) -> None:
        def fail(_name: str) -> None:
            raise ValueError

        for _ in range(5):
            with pytest.raises(ValueError, match=r"^$"):
                await uploads.read("a", fail, "x")
        await to_thread.run_sync(order.append, "waited")
        await uploads.read("a", order.append, "done")

    assert turns(script) == ["waited", "done"]
