import io
import json
import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import optuna
import pytest
from optuna.trial import FrozenTrial
from optuna_dashboard import wsgi
from starlette.testclient import TestClient

from search.optuna_tables import open_storage, study_name
from search.sampling.optuna_copy import OptunaCopy
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from service.api.paths import dashboard_number, dashboard_path
from service.app import create_app
from service.processes.dashboard import run_dashboard
from service.processes.dashboard_detail import WithDetails
from service.processes.dashboard_storage import ReadOnly, StudiesOfTenant
from storage.records import LOCAL, StudyRecord, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.service.processes import running_dashboard, wait_until
from tests.service.site import Site, now

PROBLEM = "application/problem+json"
WRITING = ("POST", "PUT", "PATCH", "DELETE")
PLACES = (
    "/dashboard",
    "/api/studies",
    "/api/studies/1",
    "/static/bundle.js",
    "/csv/1",
    "/artifacts/1/a",
)


def stocked(site: Site, *, tenant: str = LOCAL) -> StudyRecord:
    """A study with a trial in every state that one has in the dashboard."""
    study = site.study(tenant=tenant, budget={"trials": 9, "epochs": 2}, limits={"parameters": 900})
    site.trial(study, 0, quality=0.75, throughput=50.0)
    site.trial(study, 1, state=TrialState.RUNNING)
    site.trial(study, 2, state=TrialState.INFEASIBLE, reason="over the limit", violation=7.0)
    site.trial(study, 3, state=TrialState.FAILED, reason="exited with code 1")
    site.trial(study, 4, quality=0.5, throughput=90.0)
    site.trial(study, 5, quality=0.5, throughput=40.0)
    return study


@pytest.fixture
def study(site: Site) -> StudyRecord:
    return stocked(site)


@dataclass(frozen=True)
class Beside:
    """The API with a dashboard's process behind it, which starts only once for all tests."""

    site: Site
    study: StudyRecord
    socket: Path
    client: TestClient


@pytest.fixture(scope="module")
def beside(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    site = Site(tmp_path_factory.mktemp("dashboard"))
    study = stocked(site)
    # The path of a socket may not be long, and a test's own folder is.
    path = tmp_path_factory.getbasetemp().parent / f"{study.id}.sock"
    settings = site.settings.model_copy(update={"dashboard_socket": path})
    log = settings.data_dir / "dashboard.log"
    with (
        running_dashboard(settings, log) as process,
        TestClient(create_app(settings), base_url="http://localhost:8080") as client,
    ):

        def there() -> bool:
            assert process.poll() is None, log.read_text()
            return client.get("/api/meta").status_code == 200

        wait_until(there)
        yield Beside(site, study, path, client)
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
        assert not path.exists(), "it ends in order"
    site.close()


@pytest.fixture
def dashboard(beside: Beside) -> TestClient:
    return beside.client


def content(url: str) -> list[str]:
    """All that our file holds."""
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        return list(connection.iterdump())


def test_the_dashboard_shows_our_studies_trials_and_objectives_by_name(
    dashboard: TestClient, beside: Beside
) -> None:
    page = dashboard.get("/dashboard")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    script = re.search(r'src="(/static/[^"]+)"', page.text)
    assert script is not None
    assert dashboard.get(script[1]).headers["content-type"].startswith("text/javascript")
    studies: list[dict[str, Any]] = dashboard.get("/api/studies").json()["study_summaries"]
    assert [summary["study_name"] for summary in studies] == [study_name(beside.study)]
    detail = dashboard.get(f"/api/studies/{studies[0]['study_id']}").json()
    assert detail["objective_names"] == ["accuracy", "parameters", "throughput"]
    assert [trial["number"] for trial in detail["trials"]] == [0, 1, 2, 3, 4, 5]
    assert detail["trials"][0]["values"][0] == 0.75


def test_everything_that_the_dashboard_reads_can_be_read(
    dashboard: TestClient, beside: Beside
) -> None:
    number = dashboard_number(beside.study.id)
    for path in (dashboard_path(beside.study.id), "/api/meta", f"/csv/{number}", "/favicon.ico"):
        assert dashboard.get(path).status_code == 200, path
        assert dashboard.head(path).content == b""
    assert dashboard.get("/api/studies/99").status_code == 404


def test_nothing_can_be_changed_through_the_api(dashboard: TestClient, beside: Beside) -> None:
    before = content(beside.site.settings.database_url)
    for path in (*PLACES, "/api/studies/1/rename", "/api/trials/1/tell"):
        for method in WRITING:
            answer = dashboard.request(method, path, json={})
            assert (answer.status_code, answer.headers["content-type"]) == (405, PROBLEM)
    for method in ("GET", *WRITING):
        assert dashboard.request(method, "/incompatible-rdb-schema").status_code == 404
    assert content(beside.site.settings.database_url) == before


def test_nothing_can_be_changed_through_the_dashboards_own_socket(
    beside: Beside,
) -> None:
    before = content(beside.site.settings.database_url)
    assert beside.socket.stat().st_mode & 0o777 == 0o600
    transport = httpx2.HTTPTransport(uds=str(beside.socket))
    with httpx2.Client(transport=transport, base_url="http://localhost") as direct:
        assert direct.get("/api/studies").status_code == 200
        for path in (*PLACES, "/incompatible-rdb-schema", "/api/studies/1/rename"):
            for method in WRITING:
                assert direct.request(method, path, json={}).status_code == 405
    assert content(beside.site.settings.database_url) == before


def test_our_own_404_and_405_stay_problems_beside_the_dashboard(dashboard: TestClient) -> None:
    for method, path, status in (("GET", "/nothing", 404), ("DELETE", "/v1/studies", 405)):
        answer = dashboard.request(method, path)
        assert (answer.status_code, answer.headers["content-type"]) == (status, PROBLEM)


def test_without_its_process_the_dashboard_is_a_503(client: TestClient, site: Site) -> None:
    settings = site.settings.model_copy(update={"dashboard_socket": Path("/tmp/no-such.sock")})
    with TestClient(create_app(settings), base_url="http://localhost") as other:
        for asked in (client, other):
            answer = asked.get("/dashboard")
            assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
            assert "dashboard" in answer.json()["detail"]


def test_a_dashboard_without_a_socket_is_refused(site: Site) -> None:
    with pytest.raises(ValueError, match="REFLECTORY_DASHBOARD_SOCKET"):
        run_dashboard(site.settings)


def view_of(site: Site, tenant: str = LOCAL) -> StudiesOfTenant:
    return StudiesOfTenant(site.database, tenant)


def told(trial: FrozenTrial) -> tuple[object, ...]:
    """What a sampler is told of a trial, and what the dashboard shows."""
    return (
        trial.number,
        trial.state,
        trial.params,
        trial.distributions,
        trial.values,
        trial.user_attrs,
        trial.system_attrs,
    )


def test_the_view_shows_what_the_copy_in_optunas_tables_has(site: Site, study: StudyRecord) -> None:
    spec = StudySpec.model_validate(study.spec)
    storage = open_storage(f"sqlite:///{site.settings.data_dir / 'optuna-copy.db'}")
    dimensions = SearchSpace(spec).dimensions
    OptunaCopy(site.database, study.id, spec, dimensions, storage=lambda: storage).write()
    theirs = optuna.load_study(study_name=study_name(study), storage=storage)
    ours = optuna.load_study(study_name=study_name(study), storage=view_of(site))
    assert [told(trial) for trial in ours.trials] == [told(trial) for trial in theirs.trials]
    assert ours.metric_names == ["accuracy", "parameters", "throughput"]
    assert {trial.number for trial in ours.best_trials} <= {0, 4}


def test_the_view_follows_what_becomes_of_trials(site: Site, study: StudyRecord) -> None:
    view = view_of(site)
    number = dashboard_number(study.id)
    before = view.get_all_trials(number, deepcopy=False)
    assert view.get_all_trials(number, deepcopy=False)[0] is before[0]
    with site.database.write() as session:
        Trials(session).end(study.id, 1, state=TrialState.CANCELLED, at=now())
    site.trial(study, 6, quality=0.9, throughput=10.0)
    after = view.get_all_trials(number, deepcopy=False)
    assert [trial.number for trial in after] == [0, 1, 2, 3, 4, 5, 6]
    assert after[1].state == optuna.trial.TrialState.FAIL
    assert after[0] is before[0]
    assert before[1].state == optuna.trial.TrialState.RUNNING


@pytest.mark.parametrize("objectives", [["quality"], ["quality", "parameters", "throughput"]])
def test_details_are_those_that_the_dashboard_makes(site: Site, objectives: list[str]) -> None:
    study = site.study(objectives=objectives, budget={"trials": 9, "epochs": 2})
    for number, quality in enumerate((0.5, 0.75, 0.75, 0.25)):
        site.trial(study, number, quality=quality, throughput=50.0 - number)
    site.trial(study, 4, state=TrialState.STOPPED, reason="it could add too little")
    site.trial(study, 5, state=TrialState.FAILED, reason="exited with code 1")
    site.trial(study, 6, state=TrialState.QUEUED)
    storage = view_of(site)
    theirs = wsgi(storage)
    number = dashboard_number(study.id)
    for after in (0, 3):
        answered = theirs(
            {
                "REQUEST_METHOD": "GET",
                "PATH_INFO": f"/api/studies/{number}",
                "QUERY_STRING": f"after={after}",
                "wsgi.input": io.BytesIO(),
                "wsgi.errors": io.StringIO(),
            },
            lambda *_: lambda _: None,
        )
        expected = json.loads(b"".join(answered))
        found = json.loads(WithDetails(storage, theirs).detail(number, after))
        for one in (expected, found):
            for part in ("union_user_attrs", "plotly_graph_objects"):
                one[part].sort(key=str)
            for dimension in (*one["union_search_space"], *one["intersection_search_space"]):
                # The dashboard has the options of a union in no order.
                dimension["distribution"].get("choices", []).sort(key=str)
        assert found == expected
        assert [trial["number"] for trial in found["trials"]] == list(range(after, 7))


def test_the_view_refuses_every_write(site: Site, study: StudyRecord) -> None:
    view = view_of(site)
    with pytest.raises(ReadOnly):
        optuna.create_study(storage=view)
    with pytest.raises(ReadOnly):
        optuna.delete_study(study_name=study_name(study), storage=view)
    ours = optuna.load_study(study_name=study_name(study), storage=view)
    with pytest.raises(ReadOnly):
        ours.ask()
    with pytest.raises(ReadOnly):
        ours.tell(1, [0.1, 2, 3])
    with pytest.raises(ReadOnly):
        ours.set_user_attr("a", 1)


def test_the_view_of_a_tenant_has_that_tenants_studies_alone(site: Site) -> None:
    ours, theirs = stocked(site), stocked(site, tenant="theirs")
    view = view_of(site, "theirs")
    [seen] = view.get_all_studies()
    assert seen.study_name == study_name(theirs)
    number = dashboard_number(theirs.id)
    trial = view.get_all_trials(number)[0]
    assert told(view.get_trial(trial._trial_id)) == told(trial)  # pyright: ignore[reportPrivateUsage]
    assert view.get_study_id_from_name(study_name(theirs)) == number
    assert len(view.get_study_directions(number)) == 3
    foreign = dashboard_number(ours.id)
    hidden = view_of(site).get_all_trials(foreign)[0]
    for read in (
        lambda: view.get_study_id_from_name(study_name(ours)),
        lambda: view.get_study_name_from_id(foreign),
        lambda: view.get_study_directions(foreign),
        lambda: view.get_study_user_attrs(foreign),
        lambda: view.get_study_system_attrs(foreign),
        lambda: view.get_all_trials(foreign),
        lambda: view.get_n_trials(foreign),
        lambda: view.get_trial(hidden._trial_id),  # pyright: ignore[reportPrivateUsage]
        lambda: view.get_trial_params(hidden._trial_id),  # pyright: ignore[reportPrivateUsage]
        lambda: view.get_trial_id_from_study_id_trial_number(foreign, 0),
    ):
        with pytest.raises(KeyError):
            read()


def test_a_deleted_study_is_not_there_any_more(site: Site, study: StudyRecord) -> None:
    view = view_of(site)
    number = dashboard_number(study.id)
    assert view.get_all_trials(number)
    with site.database.write() as session:
        Studies(session).delete(study.id)
    assert view.get_all_studies() == []
    with pytest.raises(KeyError):
        view.get_all_trials(number)
