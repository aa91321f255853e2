from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from service.auth.api_keys import create_key, revoke_key
from service.auth.origins import AddressRefused, check_address
from service.processes.api_process import run_api
from tests.service.site import SMALL_SPEC, Site

ALLOWED_HOSTS = [
    "localhost",
    "localhost:8080",
    "LOCALHOST:1",
    "127.0.0.1:8080",
    "127.5.5.5",
    "[::1]:80",
]
REFUSED_HOSTS = [
    "evil.example",
    "evil.example:8080",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "192.168.1.7:8080",
    "0.0.0.0:8080",
    "[::]:8080",
    "localhost@evil.example",
    "localhost:8080:80",
    "",
]


@pytest.mark.parametrize("host", ALLOWED_HOSTS)
def test_loopback_names_are_let_in(client: TestClient, host: str) -> None:
    assert client.get("/v1/studies", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/studies", "/", "/dashboard", "/openapi.json", "/nothing"])
@pytest.mark.parametrize("host", REFUSED_HOSTS)
def test_other_names_are_refused_everywhere(client: TestClient, host: str, path: str) -> None:
    answer = client.get(path, headers={"Host": host})
    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"
    assert "localhost" in answer.json()["detail"]


@pytest.mark.parametrize(
    "header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via"]
)
def test_a_forwarded_request_is_refused(client: TestClient, header: str) -> None:
    answer = client.get("/v1/studies", headers={header: "127.0.0.1"})
    assert answer.status_code == 403
    assert header.lower() in answer.json()["detail"]


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 202),
        ("http://localhost:8080", 202),
        ("http://localhost:9090", 403),
        ("https://localhost:8080", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_only_our_own_page_may_change_something(
    client: TestClient, origin: str | None, status: int
) -> None:
    headers = {} if origin is None else {"Origin": origin}
    answer = client.post("/v1/studies", json=SMALL_SPEC, headers=headers)
    assert answer.status_code == status
    assert len(client.get("/v1/studies").json()["items"]) == (1 if status == 202 else 0)


def test_reading_is_not_bound_to_an_origin(client: TestClient) -> None:
    answer = client.get("/v1/studies", headers={"Origin": "http://evil.example"})
    assert answer.status_code == 200
    # The browser keeps the answer from the page: nothing allows another origin to read it.
    assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.7", "example.com", ""])
def test_an_address_that_others_reach_is_refused_while_there_is_no_key(
    host: str, site: Site
) -> None:
    with pytest.raises(AddressRefused, match="loopback addresses"):
        check_address(host, site.settings.database_url)
    with pytest.raises(AddressRefused, match="reflectory keys create"):
        run_api(site.settings.model_copy(update={"host": host}))
    key = create_key(site.database, name="a key", scopes=("read",)).record
    check_address(host, site.settings.database_url)
    revoke_key(site.database, key.id)
    with pytest.raises(AddressRefused):
        check_address(host, site.settings.database_url)
    create_key(site.database, name="short", scopes=("read",), lifetime=timedelta(0))
    with pytest.raises(AddressRefused):
        check_address(host, site.settings.database_url)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_loopback_addresses_are_taken_whether_or_not_there_are_keys(host: str) -> None:
    check_address(host, "sqlite:////nowhere/at/all.db")
