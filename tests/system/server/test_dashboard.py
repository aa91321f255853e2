import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import optuna
import pytest
from optuna.exceptions import StorageInternalError
from starlette.testclient import TestClient

from search.optuna_tables import open_storage, study_name
from search.sampling.optuna_copy import OptunaCopy
from search.spaces.space import SearchSpace
from search.studies.spec import StudySpec
from service.app import create_app
from service.processes.dashboard import run_dashboard
from service.processes.dashboard_storage import ReadOnly, TenantStorage, open_read_only
from storage.records import LOCAL, StudyRecord, TrialState
from tests.service.processes import running_dashboard, wait_until
from tests.service.site import Site

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


def mirrored(site: Site, *, tenant: str = LOCAL) -> StudyRecord:
    """A study with two trials in Optuna's tables, written as the coordinator writes it."""
    study = site.study(tenant=tenant)
    site.trial(study, 0, quality=0.75, throughput=50.0)
    site.trial(study, 1, state=TrialState.RUNNING)
    spec = StudySpec.model_validate(study.spec)
    OptunaCopy(
        site.database,
        study.id,
        spec,
        SearchSpace(spec).dimensions,
        storage=lambda: open_storage(site.settings.optuna_url),
    ).write()
    return study


@pytest.fixture
def study(site: Site) -> StudyRecord:
    return mirrored(site)


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
    study = mirrored(site)
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
    """All that Optuna's file holds."""
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
    assert [trial["number"] for trial in detail["trials"]] == [0, 1]
    assert detail["trials"][0]["values"][0] == 0.75


def test_everything_that_the_dashboard_reads_can_be_read(dashboard: TestClient) -> None:
    for path in ("/dashboard/studies/1", "/api/meta", "/csv/1", "/favicon.ico"):
        assert dashboard.get(path).status_code == 200, path
        assert dashboard.head(path).content == b""
    assert dashboard.get("/api/studies/99").status_code == 404


def test_nothing_can_be_changed_through_the_api(dashboard: TestClient, beside: Beside) -> None:
    before = content(beside.site.settings.optuna_url)
    for path in (*PLACES, "/api/studies/1/rename", "/api/trials/1/tell"):
        for method in WRITING:
            answer = dashboard.request(method, path, json={})
            assert (answer.status_code, answer.headers["content-type"]) == (405, PROBLEM)
    for method in ("GET", *WRITING):
        assert dashboard.request(method, "/incompatible-rdb-schema").status_code == 404
    assert content(beside.site.settings.optuna_url) == before


def test_nothing_can_be_changed_through_the_dashboards_own_socket(
    beside: Beside,
) -> None:
    before = content(beside.site.settings.optuna_url)
    assert beside.socket.stat().st_mode & 0o777 == 0o600
    transport = httpx2.HTTPTransport(uds=str(beside.socket))
    with httpx2.Client(transport=transport, base_url="http://localhost") as direct:
        assert direct.get("/api/studies").status_code == 200
        for path in (*PLACES, "/incompatible-rdb-schema", "/api/studies/1/rename"):
            for method in WRITING:
                assert direct.request(method, path, json={}).status_code == 405
    assert content(beside.site.settings.optuna_url) == before


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


def test_the_view_reads_what_optuna_reads(site: Site, study: StudyRecord) -> None:
    view = open_read_only(site.settings.optuna_url)
    ours = optuna.load_study(study_name=study_name(study), storage=view)
    theirs = optuna.load_study(study_name=study_name(study), storage=site.settings.optuna_url)
    assert ours.trials == theirs.trials
    assert ours.best_trials == theirs.best_trials
    assert ours.metric_names == theirs.metric_names


def test_the_view_refuses_every_write(site: Site, study: StudyRecord) -> None:
    view = open_read_only(site.settings.optuna_url)
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
    # Not even the storage below can write.
    below: Any = view._storage  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(StorageInternalError):
        below.create_new_study([optuna.study.StudyDirection.MINIMIZE], "other")


def test_the_view_of_a_tenant_has_that_tenants_studies_alone(site: Site) -> None:
    ours, theirs = mirrored(site), mirrored(site, tenant="theirs")
    whole = open_read_only(site.settings.optuna_url)
    numbers = {study.study_name: study._study_id for study in whole.get_all_studies()}  # pyright: ignore[reportPrivateUsage]
    assert len(numbers) == 2
    view = TenantStorage(whole, site.database, "theirs")
    [seen] = view.get_all_studies()
    assert seen.study_name == study_name(theirs)
    number = numbers[study_name(theirs)]
    [trial, _] = view.get_all_trials(number)
    assert view.get_trial(trial._trial_id) == trial  # pyright: ignore[reportPrivateUsage]
    assert view.get_study_id_from_name(study_name(theirs)) == number
    assert len(view.get_study_directions(number)) == 3
    foreign = numbers[study_name(ours)]
    [hidden, _] = whole.get_all_trials(foreign)
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


def test_tables_that_are_not_there_are_waited_for_and_not_made(site: Site) -> None:
    file = Path(site.settings.optuna_url.removeprefix("sqlite:///"))
    with pytest.raises(StorageInternalError):
        open_read_only(site.settings.optuna_url)
    assert not file.exists()
    file.touch()
    with pytest.raises(StorageInternalError):
        open_read_only(site.settings.optuna_url)
    assert file.stat().st_size == 0
