"""Keys, cookies, scopes, limits: who gets through the gate, and as whom."""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import httpx2
import pytest
from itsdangerous import URLSafeTimedSerializer
from starlette.testclient import TestClient

from service.api_keys import NewKey, create_key, revoke_key
from service.app import create_app
from service.principal import Scope
from service.secrets import signing_secret
from storage.audit import Audit
from storage.keys import Keys
from storage.records import LOCAL, AuditRecord
from tests.service.processes import wait_until
from tests.service.site import SMALL_SPEC, Site

PROBLEM = "application/problem+json"
HOST = "http://localhost:8080"
PAGE = {"Accept": "text/html,application/xhtml+xml"}


@dataclass(frozen=True)
class Guarded:
    """A server with keys."""

    site: Site
    client: TestClient

    def key(self, *scopes: Scope, tenant: str = LOCAL, name: str = "a key") -> NewKey:
        return create_key(self.site.database.of(tenant), name=name, scopes=scopes)

    def ask(self, key: NewKey, method: str, path: str, **given: object) -> httpx2.Response:
        bearer = {"Authorization": f"Bearer {key.text}"}
        return self.client.request(method, path, headers=bearer, **given)  # pyright: ignore[reportArgumentType]

    def login(self, text: str, **given: str) -> httpx2.Response:
        return self.client.post("/login", data={"key": text, **given}, headers={"Origin": HOST})

    def audit(self, tenant: str = LOCAL) -> list[AuditRecord]:
        with self.site.database.of(tenant).read() as session:
            return Audit(session).page(limit=100).items


@pytest.fixture
def guarded(site: Site) -> Iterator[Guarded]:
    settings = site.settings.model_copy(update={"refusals_per_minute": 5})
    create_key(site.database, name="the first", scopes=("admin",))
    with TestClient(create_app(settings), base_url=HOST, follow_redirects=False) as client:
        yield Guarded(site, client)


@pytest.mark.parametrize(
    "header",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer "},
        {"Authorization": "Bearer rfl_wrong"},
        {"Authorization": "Bearer rfl_" + "A" * 43},
        {"Authorization": "Bearer rfl_" + "A" * 100_000},
        {"Authorization": "Basic dXNlcjpwYXNz"},
        {"Cookie": "reflectory=forged.by.us"},
        {"Cookie": "reflectory"},
        {"Cookie": 'reflectory="; other=\x01'},
    ],
)
def test_without_a_right_key_nobody_gets_in(guarded: Guarded, header: dict[str, str]) -> None:
    for path in ("/v1/studies", "/openapi.json", "/nothing", "/v1/keys"):
        answer = guarded.client.get(path, headers=header)
        assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert "rfl_" not in answer.text


def test_signs_of_life_and_the_way_in_are_open(guarded: Guarded) -> None:
    for path in ("/healthz", "/login", "/assets/style.css"):
        assert guarded.client.get(path, headers={"Host": "any.example"}).status_code == 200
    assert guarded.client.get("/readyz").status_code == 503


def test_a_key_does_what_its_scopes_say_and_no_more(guarded: Guarded) -> None:
    calls = [
        ("GET", "/v1/studies", None),
        ("POST", "/v1/studies?dry_run=true", SMALL_SPEC),
        ("POST", "/v1/keys", {"name": "another"}),
    ]
    scopes: tuple[Scope, ...] = ("read", "write", "admin")
    for index, scope in enumerate(scopes):
        key = guarded.key(scope)
        assert key.record.scopes == scopes[: index + 1]
        for needed, (method, path, body) in enumerate(calls):
            answer = guarded.ask(key, method, path, json=body)
            if needed <= index:
                assert answer.status_code < 300, answer.text
            else:
                assert answer.status_code == 403
                assert repr(scopes[needed]) in answer.json()["detail"]
    for path in ("/v1/keys", "/v1/keys/", "/v1/keys/abc", "/v1/audit"):
        assert guarded.ask(guarded.key("write"), "GET", path).status_code == 403


def test_keys_may_come_from_anywhere(guarded: Guarded) -> None:
    key = guarded.key("write")
    for other in ({"Host": "team.example"}, {"X-Forwarded-For": "1.2.3.4"}, {"Origin": "http://x"}):
        headers = {"Authorization": f"bearer {key.text}", **other}
        answer = guarded.client.post("/v1/studies?dry_run=true", json=SMALL_SPEC, headers=headers)
        assert answer.status_code == 200


def test_keys_are_made_listed_and_revoked_over_http(guarded: Guarded) -> None:
    admin = guarded.key("admin")
    made = guarded.ask(admin, "POST", "/v1/keys", json={"name": "ci ☃", "scopes": ["write"]})
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    document = made.json()
    text = document.pop("key")
    headers = {"Authorization": f"Bearer {text}"}
    assert guarded.client.get("/v1/studies", headers=headers).status_code == 200
    listed = guarded.ask(admin, "GET", "/v1/keys").json()["items"]
    assert listed[0] == {**document, "last_used_at": listed[0]["last_used_at"]}
    assert listed[0]["last_used_at"] is not None
    assert text not in guarded.ask(admin, "GET", "/v1/keys").text
    for _ in range(2):
        assert guarded.ask(admin, "DELETE", made.headers["Location"]).status_code == 204
    wait_until(lambda: guarded.client.get("/v1/studies", headers=headers).status_code == 401)
    assert guarded.ask(admin, "GET", "/v1/keys").json()["items"][0]["revoked_at"] is not None
    assert guarded.ask(admin, "DELETE", "/v1/keys/nothing").status_code == 404
    for wrong in ({"name": ""}, {"name": "a", "scopes": []}, {"name": "a", "scopes": ["root"]}):
        assert guarded.ask(admin, "POST", "/v1/keys", json=wrong).status_code == 422
    stored = guarded.site.settings.database_url.removeprefix("sqlite:///")
    with open(stored, "rb") as file:
        assert text.encode() not in file.read()


def test_the_first_key_ends_the_time_of_the_local_user(client: TestClient, site: Site) -> None:
    made = client.post("/v1/keys", json={"name": "first", "scopes": ["admin"]})
    assert made.status_code == 201
    wait_until(lambda: client.get("/v1/studies").status_code == 401)
    headers = {"Authorization": f"Bearer {made.json()['key']}"}
    assert client.get("/v1/studies", headers=headers).status_code == 200
    revoke_key(site.database, made.json()["id"])
    # No key is left, and loopback alone reaches the server: as before.
    wait_until(lambda: client.get("/v1/studies").status_code == 200)
    assert client.get("/v1/studies", headers=headers).status_code == 401


def test_a_public_server_whose_last_key_is_revoked_lets_nobody_in(site: Site) -> None:
    key = create_key(site.database, name="last", scopes=("admin",))
    settings = site.settings.model_copy(update={"host": "0.0.0.0"})
    with TestClient(create_app(settings), base_url=HOST) as client:
        headers = {"Authorization": f"Bearer {key.text}"}
        assert client.get("/v1/studies", headers=headers).status_code == 200
        revoke_key(site.database, key.record.id)
        wait_until(lambda: client.get("/v1/studies", headers=headers).status_code == 401)
        for path in ("/v1/studies", "/metrics", "/openapi.json"):
            assert client.get(path).status_code == 401
        assert client.get("/healthz").status_code == 200


def test_a_person_is_sent_to_log_in_and_back(guarded: Guarded) -> None:
    sent = guarded.client.get("/studies/x?cursor=a%26b", headers=PAGE)
    assert sent.status_code == 303
    form = guarded.client.get(sent.headers["Location"])
    assert 'name="next" value="/studies/x?cursor=a%26b"' in form.text
    key = guarded.key("read", name="laptop")
    back = guarded.login(key.text, next="/studies/x?cursor=a%26b")
    assert (back.status_code, back.headers["Location"]) == (303, "/studies/x?cursor=a%26b")
    cookie = back.headers["Set-Cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=lax"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert key.text not in cookie
    assert guarded.client.get("/", headers=PAGE).status_code == 200
    assert "laptop" in guarded.client.get("/login").text
    out = guarded.client.post("/logout", headers={"Origin": HOST})
    assert (out.status_code, out.headers["Location"]) == (303, "/login")
    assert guarded.client.get("/", headers=PAGE).status_code == 303


@pytest.mark.parametrize(
    "place",
    [
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "/\t/evil.example",
        "javascript:alert(1)",
        "evil",
        "",
        "http://[",
        "/a\r\nSet-Cookie: x=y",
    ],
)
def test_nobody_is_sent_elsewhere_after_logging_in(guarded: Guarded, place: str) -> None:
    key = guarded.key("read")
    assert guarded.login(key.text, next=place).headers["Location"] == "/"
    form = guarded.client.get("/login", params={"next": place})
    assert 'name="next" value="/"' in form.text


def test_over_https_the_cookie_is_for_https_alone(guarded: Guarded) -> None:
    key = guarded.key("write")
    origin = "https://team.example"
    headers = {"X-Forwarded-Proto": "https", "Host": "team.example", "Origin": origin}
    answer = guarded.client.post("/login", data={"key": key.text}, headers=headers)
    cookie = answer.headers["Set-Cookie"]
    assert "Secure" in cookie
    headers["Cookie"] = cookie.partition(";")[0]
    call = "/v1/studies?dry_run=true"
    assert guarded.client.post(call, json=SMALL_SPEC, headers=headers).status_code == 200
    headers["Origin"] = "http://team.example"
    assert guarded.client.post(call, json=SMALL_SPEC, headers=headers).status_code == 403


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (HOST, 200),
        (None, 403),
        ("null", 403),
        ("http://localhost:9090", 403),
        ("https://localhost:8080", 403),
        ("http://evil.example", 403),
    ],
)
def test_what_a_cookie_changes_has_to_come_from_our_page(
    guarded: Guarded, origin: str | None, status: int
) -> None:
    guarded.login(guarded.key("write").text)
    headers = {} if origin is None else {"Origin": origin}
    answer = guarded.client.post("/v1/studies?dry_run=true", json=SMALL_SPEC, headers=headers)
    assert answer.status_code == status
    # Reading is bound to no origin, and no other page may read the answer.
    assert guarded.client.get("/v1/studies", headers=headers).status_code == 200


def test_no_other_page_logs_anybody_in_or_out(guarded: Guarded) -> None:
    key = guarded.key("read")
    evil = {"Origin": "http://evil.example"}
    answer = guarded.client.post("/login", data={"key": key.text}, headers=evil)
    assert answer.status_code == 403
    assert "Set-Cookie" not in answer.headers
    guarded.login(key.text)
    assert guarded.client.post("/logout", headers=evil).status_code == 403
    assert guarded.client.get("/v1/studies").status_code == 200


def test_a_cookie_is_as_good_as_its_key_and_only_if_signed_as_one(guarded: Guarded) -> None:
    key = guarded.key("read")
    guarded.login(key.text)
    assert guarded.client.get("/v1/studies").status_code == 200
    secret = signing_secret(guarded.site.settings)
    forged = [
        URLSafeTimedSerializer(b"another secret", salt="reflectory login cookie"),
        URLSafeTimedSerializer(secret, salt="another purpose"),
    ]
    good = guarded.client.cookies["reflectory"]
    guarded.client.cookies.clear()

    def seen_with(cookie: str) -> int:
        headers = {"Cookie": f"other=1; reflectory={cookie}"}
        return guarded.client.get("/v1/studies", headers=headers).status_code

    for signer in forged:
        assert seen_with(str(signer.dumps(key.record.id))) == 401
    assert seen_with(f"{'A' if good[0] != 'A' else 'B'}{good[1:]}") == 401
    assert seen_with(good) == 200
    revoke_key(guarded.site.database, key.record.id)
    wait_until(lambda: seen_with(good) == 401)


def test_a_cookie_grows_old(site: Site) -> None:
    key = create_key(site.database, name="k", scopes=("read",))
    settings = site.settings.model_copy(update={"login_seconds": 1})
    with TestClient(create_app(settings), base_url=HOST, follow_redirects=False) as client:
        cookie = client.post("/login", data={"key": key.text}).headers["Set-Cookie"]
        headers = {"Cookie": cookie.partition(";")[0]}
        assert "Max-Age=1" in cookie
        # The age is counted in whole seconds.
        time.sleep(2.1)
        assert client.get("/v1/studies", headers=headers).status_code == 401


def test_wrong_keys_from_an_address_are_limited_and_right_ones_are_not(guarded: Guarded) -> None:
    key = guarded.key("read")
    answers: list[httpx2.Response] = []
    for index in range(8):
        wrong = {"Authorization": f"Bearer rfl_{index:043}"}
        by_key = guarded.client.get("/v1/studies", headers=wrong) if index % 2 else None
        answers.append(by_key if by_key is not None else guarded.login(f"rfl_{index:043}"))
    assert [answer.status_code for answer in answers] == [401] * 5 + [429] * 3
    for answer in answers[5:]:
        assert answer.headers["content-type"] == PROBLEM
        assert 1 <= int(answer.headers["Retry-After"]) <= 60
    assert guarded.ask(key, "GET", "/v1/studies").status_code == 200
    assert guarded.login(key.text).status_code == 303


def test_a_key_that_asks_too_much_waits_and_others_do_not(site: Site) -> None:
    busy, calm = (create_key(site.database, name=n, scopes=("read",)) for n in ("busy", "calm"))
    settings = site.settings.model_copy(update={"requests_per_minute": 3})
    with TestClient(create_app(settings), base_url=HOST) as client:
        asked = [
            client.get("/v1/studies", headers={"Authorization": f"Bearer {busy.text}"})
            for _ in range(5)
        ]
        assert [answer.status_code for answer in asked] == [200] * 3 + [429] * 2
        assert int(asked[-1].headers["Retry-After"]) >= 1
        other = client.get("/v1/studies", headers={"Authorization": f"Bearer {calm.text}"})
        assert other.status_code == 200


def test_deeds_are_noted_with_the_key_and_read_by_admins(guarded: Guarded) -> None:
    key = guarded.key("admin", tenant="team", name="deeds")
    study = guarded.ask(key, "POST", "/v1/studies", json=SMALL_SPEC).json()["id"]
    for call in ("pause", "pause", "resume", "cancel", "cancel"):
        assert guarded.ask(key, "POST", f"/v1/studies/{study}/{call}").status_code == 200
    other = guarded.ask(key, "POST", "/v1/studies", json=SMALL_SPEC).json()["id"]
    change = {"budget": {"trials": 9}}
    assert guarded.ask(key, "PATCH", f"/v1/studies/{other}", json=change).status_code == 200
    own = {"architecture": "rnn", "parametrization": "dense"}
    assert guarded.ask(key, "POST", f"/v1/studies/{other}/trials", json=own).status_code == 202
    files = {"file": ("a.csv", b"label,x\na,1\nb,2\na,3\nb,4\n")}
    data = guarded.ask(key, "POST", "/v1/datasets", files=files).json()["id"]
    assert guarded.ask(key, "DELETE", f"/v1/datasets/{data}").status_code == 204
    guarded.login(key.text)
    events = guarded.ask(key, "GET", "/v1/audit").json()["items"]
    assert [(event["action"], event["subject"]) for event in reversed(events)] == [
        ("key.created", key.record.id),
        ("study.submitted", study),
        ("study.paused", study),
        ("study.resumed", study),
        ("study.cancelled", study),
        ("study.submitted", other),
        ("study.budget", other),
        ("trial.enqueued", other),
        ("dataset.uploaded", data),
        ("dataset.deleted", data),
        ("login", key.record.id),
    ]
    assert {event["key_id"] for event in events} == {None, key.record.id}
    by = guarded.ask(key, "GET", f"/v1/studies/{other}").json()
    assert by["spec"]["budget"]["trials"] == 9
    assert all(event.subject not in (study, other) for event in guarded.audit())


def test_refused_logins_are_noted_for_whose_key_it_was(guarded: Guarded) -> None:
    key = guarded.key("read", tenant="team")
    revoke_key(guarded.site.database.of("team"), key.record.id)
    assert guarded.login(key.text).status_code == 401
    assert guarded.login("rfl_unknown").status_code == 401
    assert guarded.audit("team")[0].action == "login.refused"
    assert guarded.audit("team")[0].subject == key.record.id
    assert (guarded.audit()[0].action, guarded.audit()[0].subject) == ("login.refused", "")
    assert "unknown" not in repr(guarded.audit())


@pytest.mark.parametrize("path", ["/", "/login", "/datasets", "/models", "/docs", "/studies/new"])
def test_pages_may_load_nothing_but_our_own_files(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert "style=" not in answer.text
    assert not re.search(r"<[^>]+ on[a-z]+=", answer.text)
    assert "<script>" not in answer.text
    assert "<style" not in answer.text


@pytest.mark.parametrize(
    "path", ["/", "/v1/studies", "/v1/nothing", "/healthz", "/assets/style.css", "/dashboard"]
)
def test_every_answer_carries_the_headers_that_keep_browsers_careful(
    client: TestClient, path: str
) -> None:
    headers = client.get(path).headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["Referrer-Policy"] in ("same-origin", "no-referrer")
    assert "camera=()" in headers["Permissions-Policy"]
    assert "frame-ancestors" in headers["Content-Security-Policy"]
    assert "public" not in headers["Cache-Control"]


def test_the_database_away_is_no_way_in(guarded: Guarded) -> None:
    with guarded.site.database.read() as session:
        assert Keys(session).any_valid()
    settings = guarded.site.settings.model_copy(
        update={"database_url": "postgresql://127.0.0.1:1/nobody?connect_timeout=1"}
    )
    with TestClient(create_app(settings), base_url=HOST) as client:
        answer = client.get("/v1/studies")
        assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
        assert client.get("/healthz").status_code == 200
