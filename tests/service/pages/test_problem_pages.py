"""Problems for people are pages; for programs, and under `/v1`, they stay documents."""

import pytest
from fastapi import FastAPI
from markupsafe import escape
from starlette.testclient import TestClient

from service.pages.html import POLICY
from tests.service.site import Site

PROBLEM = "application/problem+json"
BROWSER = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


@pytest.mark.parametrize(
    ("method", "path", "status", "ways"),
    [
        ("GET", "/studies/none", 404, ["/"]),
        ("GET", "/studies/<b>none</b>/trials/0", 404, ["/"]),
        ("GET", "/datasets/none", 404, ["/datasets", "/"]),
        ("GET", "/nowhere", 404, ["/"]),
        ("GET", "/papers/none", 404, ["/papers", "/"]),
        ("PUT", "/models", 405, ["/"]),
        ("GET", "/?cursor=@@", 422, ["/"]),
    ],
)
def test_a_browser_gets_a_page_with_the_same_sentence_and_ways_back(
    client: TestClient, method: str, path: str, status: int, ways: list[str]
) -> None:
    told = client.request(method, path)
    page = client.request(method, path, headers=BROWSER)
    assert (told.status_code, told.headers["content-type"]) == (status, PROBLEM)
    assert (page.status_code, page.headers["content-type"]) == (
        status,
        "text/html; charset=utf-8",
    )
    assert page.headers["content-security-policy"] == POLICY
    assert page.headers["vary"] == "Accept"
    assert "<b>none" not in page.text
    assert f"<p>{escape(told.json()['detail'])}</p>" in page.text
    assert f"Status {status}" in page.text
    for way in ways:
        assert f'<a class="button" href="{way}">' in page.text


def test_the_api_answers_a_browser_with_documents(client: TestClient) -> None:
    for path in ("/v1/studies/none", "/v1/nothing", "/v1"):
        answer = client.get(path, headers=BROWSER)
        assert (answer.status_code, answer.headers["content-type"]) == (404, PROBLEM)


def test_a_page_leads_back_to_where_the_reader_comes_from(client: TestClient) -> None:
    here = "http://localhost:8080"
    for referer, is_way in (
        (f"{here}/datasets?cursor=a&x=1", True),
        ("http://elsewhere.example/datasets", False),
        (f"{here}//elsewhere.example", False),
        ("http://[", False),
    ):
        page = client.get("/studies/none", headers={**BROWSER, "Referer": referer})
        assert ('href="/datasets?cursor=a&amp;x=1">Back</a>' in page.text) == is_way
        assert "elsewhere" not in page.text


def test_a_head_has_the_status_alone(client: TestClient) -> None:
    answer = client.head("/studies/none", headers=BROWSER)
    assert (answer.status_code, answer.content) == (404, b"")


def test_an_error_that_nobody_expected_is_a_page(site: Site, client: TestClient) -> None:
    app = client.app
    assert isinstance(app, FastAPI)

    @app.get("/broken")
    def broken() -> None:
        raise ZeroDivisionError

    with TestClient(
        app, base_url="http://localhost", client=("127.0.0.1", 5), raise_server_exceptions=False
    ) as asking:
        page = asking.get("/broken", headers=BROWSER)
        assert page.status_code == 500
        assert "its log has the details" in page.text
        assert page.headers["x-request-id"]
        assert asking.get("/broken").headers["content-type"] == PROBLEM
