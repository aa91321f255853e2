import inspect
from types import ModuleType

import pytest
from starlette.testclient import TestClient

import models.errors
import search.errors
import storage.errors
from service.app import create_app
from service.errors import ANSWERS, answer_of
from storage.errors import LeaseLost, QuotaReached
from storage.records import TrialState
from tests.search.honest_words import resume_file
from tests.service.site import SMALL_SPEC, Site

PROBLEM = "application/problem+json"


def errors_of(module: ModuleType) -> set[type[Exception]]:
    return {
        value
        for _, value in inspect.getmembers(module, inspect.isclass)
        if issubclass(value, Exception) and value.__module__ == module.__name__
    }


def test_every_public_error_has_its_answer_and_no_other_has() -> None:
    public = errors_of(models.errors) | errors_of(search.errors) | errors_of(storage.errors)
    assert set(ANSWERS) == public


def test_kinds_of_problems_are_told_apart() -> None:
    """Only errors of one family, which differ in what to do next, share theirs."""
    for error, answer in ANSWERS.items():
        alike = {other for other, theirs in ANSWERS.items() if theirs.kind == answer.kind}
        assert all(issubclass(other, QuotaReached) for other in alike - {error}), alike


def test_an_error_of_a_subclass_is_answered_as_its_nearest_ancestor() -> None:
    class Later(LeaseLost):
        pass

    assert answer_of(Later()) == ANSWERS[LeaseLost]


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/v1/studies"), ("DELETE", "/healthz"), ("POST", "/"), ("POST", "/assets/style.css")],
)
def test_a_wrong_method_is_a_405_problem(client: TestClient, method: str, path: str) -> None:
    answer = client.request(method, path)
    assert (answer.status_code, answer.headers["content-type"]) == (405, PROBLEM)
    assert answer.json()["title"] == "Method Not Allowed"
    assert path in answer.json()["detail"]


def test_a_body_that_is_too_large_is_a_413_problem_on_every_route(site: Site) -> None:
    settings = site.settings.model_copy(update={"max_spec_bytes": 2048})
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        large = {**SMALL_SPEC, "name": "x" * 4096}
        declared = client.post("/v1/studies", json=large)
        undeclared = client.post(
            "/v1/studies",
            content=iter([b" " * 1024] * 4),
            headers={"Content-Type": "application/json"},
        )
        useless = client.request("GET", "/v1/studies", content=b" " * 4096)
        for answer in (declared, undeclared, useless):
            assert (answer.status_code, answer.headers["content-type"]) == (413, PROBLEM)
            assert "2048" in answer.json()["detail"]
        assert client.post("/v1/studies", json=SMALL_SPEC).status_code == 202


def test_an_upload_has_its_own_limit(site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    state = resume_file(lease.job)
    limits = {"max_spec_bytes": 1024, "max_artifact_bytes": len(state)}
    settings = site.settings.model_copy(update=limits)
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        path = lease.path("artifacts/resume")
        for size, status in ((0, 200), (1, 413)):
            for content in (state + b"x" * size, iter([state, b"x" * size])):
                answer = client.put(path, content=content, headers=lease.headers)
                assert answer.status_code == status
        # JSON is not as large there, as anywhere.
        answer = client.post("/v1/agents/nobody/poll", content=b" " * 2048)
        assert answer.status_code == 413


def test_what_nobody_expected_is_a_500_that_tells_nothing_of_the_inside(site: Site) -> None:
    app = create_app(site.settings)
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        study = site.study()
        with site.database.write() as session:
            session.connection().exec_driver_sql("UPDATE study SET spec = '{}'")
        answer = client.get(f"/v1/studies/{study.id}")
    assert (answer.status_code, answer.headers["content-type"]) == (500, PROBLEM)
    assert "Traceback" not in answer.text
    assert "task" not in answer.text


def test_bytes_that_are_no_text_are_refused_with_what_is_wrong(client: TestClient) -> None:
    answer = client.post(
        "/v1/studies", content=b'{"task": "\xff"}', headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.headers["content-type"]) == (400, PROBLEM)
    assert "0xff" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "methods"),
    [("/v1/studies", "GET, POST, HEAD"), ("/v1/studies/x", "GET, PATCH, DELETE, HEAD")],
)
def test_a_wrong_method_names_all_that_the_path_has(
    client: TestClient, path: str, methods: str
) -> None:
    assert client.put(path).headers["Allow"] == methods
