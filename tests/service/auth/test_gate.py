"""Keys, cookies, scopes, limits: who gets through the gate, and as whom."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

import httpx2
import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.auth.api_keys import NewKey, create_key, reset_keys, revoke_key, rotate_key
from service.auth.keyring import KeyRing
from service.auth.principal import Scope
from service.auth.rate_limits import RateLimits
from storage.account_records import AuditRecord
from storage.accounts.audit import Audit
from storage.accounts.browser_sessions import BrowserSessions
from storage.accounts.keys import Keys, key_digest
from storage.records import LOCAL
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

    @contextmanager
    def beside(self) -> Iterator[TestClient]:
        """Another API process over the same database."""
        app = create_app(self.site.settings)
        with TestClient(app, base_url=HOST, follow_redirects=False) as client:
            yield client

    def seen_with(self, cookie: str, client: TestClient | None = None) -> int:
        """How a request with this cookie, and no other, is answered."""
        asked = client or self.client
        asked.cookies.clear()
        headers = {"Cookie": f"other=1; reflectory={cookie}"}
        return asked.get("/v1/studies", headers=headers).status_code

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


@pytest.mark.parametrize("ends", ["revoked", "expired"])
def test_the_last_key_of_a_loopback_server_lets_nobody_in_when_it_ends(
    client: TestClient, site: Site, ends: str
) -> None:
    assert client.get("/v1/studies").status_code == 200
    lifetime = timedelta(0) if ends == "expired" else None
    key = create_key(site.database, name="last", scopes=("admin",), lifetime=lifetime)
    if ends == "revoked":
        revoke_key(site.database, key.record.id)
    wait_until(lambda: client.get("/v1/studies").status_code == 401)
    wait_until(lambda: "keys create NAME" in client.get("/v1/studies").json()["detail"])
    assert client.get("/", headers=PAGE, follow_redirects=False).status_code == 303
    # What is read from this machine without a key goes on to be.
    assert client.get("/metrics").status_code == 200
    assert reset_keys(site.database) == [key.record.id]
    wait_until(lambda: client.get("/v1/studies").status_code == 200)


def test_an_expired_key_is_told_when_it_ended_and_its_tenant_hears_of_it(guarded: Guarded) -> None:
    key = create_key(
        guarded.site.database.of("team"), name="old", scopes=("read",), lifetime=timedelta(0)
    )
    for _ in range(3):
        answer = guarded.ask(key, "GET", "/v1/studies")
        assert (answer.status_code, answer.headers["content-type"]) == (401, PROBLEM)
        assert f"has expired, at {key.record.expires_at:%Y-%m-%d %H:%M:%S}" in answer.text
    page = guarded.login(key.text)
    assert page.status_code == 401
    assert "has expired" in page.text
    told = [(event.action, event.subject) for event in guarded.audit("team")]
    assert told.count(("key.expired", key.record.id)) == 1
    assert ("login.refused", key.record.id) in told


def test_a_key_that_expires_while_it_is_used_is_refused_from_then_on(guarded: Guarded) -> None:
    key = create_key(
        guarded.site.database, name="soon", scopes=("read",), lifetime=timedelta(seconds=3)
    )
    wait_until(lambda: guarded.ask(key, "GET", "/v1/studies").status_code == 401)
    assert key.record.expires_at is not None
    assert datetime.now(UTC) >= key.record.expires_at


def test_a_key_is_rotated_over_http_and_both_are_good_for_the_overlap(guarded: Guarded) -> None:
    admin = guarded.key("admin")
    body = {"name": "ci", "scopes": ["write"], "expires_in": "90d"}
    old = guarded.ask(admin, "POST", "/v1/keys", json=body).json()
    lifetime = timedelta(days=90)
    assert _time(old["expires_at"]) - _time(old["created_at"]) == lifetime
    path = f"/v1/keys/{old['id']}/rotate"
    made = guarded.ask(admin, "POST", path, json={"overlap": "7d"})
    assert (made.status_code, made.headers["Cache-Control"]) == (201, "no-store")
    new = made.json()
    assert made.headers["Location"] == f"/v1/keys/{new['id']}"
    assert (new["name"], new["scopes"], new["state"]) == ("ci", ["read", "write"], "valid")
    assert _time(new["expires_at"]) - _time(new["created_at"]) == lifetime
    listed = guarded.ask(admin, "GET", "/v1/keys").json()["items"]
    was = next(key for key in listed if key["id"] == old["id"])
    assert (was["successor"], was["state"]) == (new["id"], "valid")
    overlap = _time(was["expires_at"]) - _time(new["created_at"])
    assert timedelta(days=6) < overlap <= timedelta(days=7)
    for text in (old["key"], new["key"]):
        headers = {"Authorization": f"Bearer {text}"}
        assert guarded.client.get("/v1/studies", headers=headers).status_code == 200
    again = guarded.ask(admin, "POST", path)
    assert (again.status_code, again.headers["content-type"]) == (409, PROBLEM)
    ended = guarded.ask(admin, "POST", f"/v1/keys/{new['id']}/rotate", json={"overlap": "0d"})
    assert ended.status_code == 201
    headers = {"Authorization": f"Bearer {new['key']}"}
    wait_until(lambda: guarded.client.get("/v1/studies", headers=headers).status_code == 401)
    assert guarded.ask(admin, "POST", f"/v1/keys/{new['id']}/rotate").status_code == 409
    assert guarded.ask(admin, "POST", "/v1/keys/nothing/rotate").status_code == 404
    for wrong in ({"overlap": "1y"}, {"overlap": -1}, {"expires_in": "0d"}, {"overlap": "99999d"}):
        assert guarded.ask(admin, "POST", path, json=wrong).status_code == 422
    actions = [(event.action, event.subject) for event in guarded.audit()]
    assert ("key.rotated", old["id"]) in actions


def test_a_machines_key_is_not_rotated_over_http(guarded: Guarded) -> None:
    machine = guarded.key("work")
    answer = guarded.ask(guarded.key("admin"), "POST", f"/v1/keys/{machine.record.id}/rotate")
    assert (answer.status_code, answer.headers["content-type"]) == (403, PROBLEM)
    assert "reflectory keys rotate" in answer.json()["detail"]
    successor = rotate_key(guarded.site.database, machine.record.id)
    assert successor.record.scopes == ("work",)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)


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
    assert '<a href="/login">Log in</a>' in form.text
    home = guarded.client.get("/", headers=PAGE)
    assert home.status_code == 200
    assert '<a href="/login">Log out</a>' in home.text
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


def test_over_https_the_cookie_is_for_https_alone(site: Site) -> None:
    key = create_key(site.database, name="k", scopes=("write",))
    settings = site.settings.model_copy(update={"trusted_proxies": ("10.0.0.0/8",)})
    proxy = ("10.1.2.3", 50000)
    with TestClient(create_app(settings), base_url=HOST, client=proxy) as client:
        _over_https(client, key)


def _over_https(client: TestClient, key: NewKey) -> None:
    origin = "https://team.example"
    headers = {"X-Forwarded-Proto": "https", "Host": "team.example", "Origin": origin}
    form = {"key": key.text}
    answer = client.post("/login", data=form, headers=headers, follow_redirects=False)
    cookie = answer.headers["Set-Cookie"]
    assert "Secure" in cookie
    client.cookies.clear()
    headers["Cookie"] = cookie.partition(";")[0]
    call = "/v1/studies?dry_run=true"
    assert client.post(call, json=SMALL_SPEC, headers=headers).status_code == 200
    headers["Origin"] = "http://team.example"
    assert client.post(call, json=SMALL_SPEC, headers=headers).status_code == 403


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


def test_a_cookie_is_as_good_as_its_key_and_known_by_all_of_its_text(guarded: Guarded) -> None:
    key = guarded.key("read")
    guarded.login(key.text)
    assert guarded.client.get("/v1/studies").status_code == 200
    good = guarded.client.cookies["reflectory"]
    assert len(good) >= 43
    # Nobody who reads the database can log in with what is in it.
    assert guarded.seen_with(key_digest(good)) == 401
    assert guarded.seen_with(key_digest(good)[:43]) == 401
    assert guarded.seen_with(key.text) == 401
    assert guarded.seen_with(f"{'A' if good[0] != 'A' else 'B'}{good[1:]}") == 401
    assert guarded.seen_with(good) == 200
    revoke_key(guarded.site.database, key.record.id)
    wait_until(lambda: guarded.seen_with(good) == 401)


def test_logging_out_ends_the_session_at_once_and_elsewhere_within_a_second(
    guarded: Guarded,
) -> None:
    key = guarded.key("write")
    guarded.login(key.text)
    cookie = guarded.client.cookies["reflectory"]
    with guarded.beside() as other:
        assert guarded.seen_with(cookie, other) == guarded.seen_with(cookie) == 200
        headers = {"Origin": HOST, "Cookie": f"reflectory={cookie}"}
        assert guarded.client.post("/logout", headers=headers).status_code == 303
        assert guarded.seen_with(cookie) == 401
        wait_until(lambda: guarded.seen_with(cookie, other) == 401)
    assert guarded.audit()[0].action == "logout"
    # Whoever has logged out does not log out again.
    guarded.client.post("/logout", headers=headers)
    assert [event.action for event in guarded.audit()].count("logout") == 1


def test_logging_in_again_ends_the_session_that_the_browser_had(guarded: Guarded) -> None:
    first, second = guarded.key("read", tenant="team"), guarded.key("read")
    guarded.login(first.text)
    before = guarded.client.cookies["reflectory"]
    guarded.login(second.text)
    after = guarded.client.cookies["reflectory"]
    assert before != after
    assert guarded.seen_with(after) == 200
    assert guarded.seen_with(before) == 401
    # A cookie that somebody put into the browser beforehand never becomes a session.
    planted = "planted" * 6 + "X"
    headers = {"Origin": HOST, "Cookie": f"reflectory={planted}"}
    guarded.client.post("/login", data={"key": first.text}, headers=headers)
    assert guarded.client.cookies["reflectory"] != planted
    assert guarded.seen_with(planted) == 401


def test_all_browsers_of_a_key_are_logged_out_together(guarded: Guarded) -> None:
    key, other = guarded.key("read", name="shared"), guarded.key("read")
    cookies: list[str] = []
    for text in (key.text, key.text, other.text):
        guarded.client.cookies.clear()
        guarded.login(text)
        cookies.append(guarded.client.cookies["reflectory"])
    headers = {"Cookie": f"reflectory={cookies[0]}"}
    guarded.client.cookies.clear()
    assert "2 browsers are logged in" in guarded.client.get("/login", headers=headers).text
    evil = {**headers, "Origin": "http://evil.example"}
    everywhere = {"everywhere": "yes"}
    assert guarded.client.post("/logout", data=everywhere, headers=evil).status_code == 403
    assert guarded.seen_with(cookies[1]) == 200
    guarded.client.post("/logout", data=everywhere, headers={**headers, "Origin": HOST})
    assert [guarded.seen_with(cookie) for cookie in cookies] == [401, 401, 200]


def test_over_https_a_cookie_of_plain_http_is_none(guarded: Guarded) -> None:
    key = guarded.key("read")
    https = HOST.replace("http", "https")
    answer = guarded.client.post(
        f"{https}/login", data={"key": key.text}, headers={"Origin": https}
    )
    cookie, _, rest = answer.headers["Set-Cookie"].partition(";")
    name, _, text = cookie.partition("=")
    assert name == "__Host-reflectory"
    assert {"Secure", "HttpOnly", "Path=/"} <= set(rest.strip().split("; "))
    assert "Domain" not in rest
    guarded.client.cookies.clear()

    def asked(cookie: str, *, at: str) -> int:
        return guarded.client.get(f"{at}/v1/studies", headers={"Cookie": cookie}).status_code

    assert asked(cookie, at=https) == 200
    # Another host of the same domain, or one in the middle of plain HTTP, can set such a one.
    assert asked(f"reflectory={text}", at=https) == 401
    assert asked(cookie, at=HOST) == 401


def test_a_session_grows_old(site: Site) -> None:
    key = create_key(site.database, name="k", scopes=("read",))
    settings = site.settings.model_copy(update={"login_seconds": 2})
    with TestClient(create_app(settings), base_url=HOST, follow_redirects=False) as client:
        cookie = client.post("/login", data={"key": key.text}).headers["Set-Cookie"]
        headers = {"Cookie": cookie.partition(";")[0]}
        assert "Max-Age=2" in cookie
        # Using it makes it no younger.
        wait_until(lambda: client.get("/v1/studies", headers=headers).status_code == 401)


def test_an_idle_session_ends_and_one_that_is_used_goes_on(guarded: Guarded) -> None:
    key = guarded.key("read")
    guarded.login(key.text)
    idle, used = guarded.client.cookies["reflectory"], ""
    guarded.client.cookies.clear()
    guarded.login(key.text)
    used = guarded.client.cookies["reflectory"]
    now = datetime.now(UTC)
    with guarded.site.database.write() as session:
        sessions = BrowserSessions(session)
        long_ago = now - timedelta(hours=23, minutes=59)
        sessions.touch(key_digest(idle), at=now - timedelta(days=1), expires_at=now)
        sessions.touch(key_digest(used), at=long_ago, expires_at=now + timedelta(minutes=1))
        Keys(session).touch(key.record.id, at=long_ago)
    assert guarded.seen_with(idle) == 401
    assert guarded.seen_with(used) == 200
    with guarded.site.database.read() as session:
        found = BrowserSessions(session).find(key_digest(used), at=now)
        last_used = Keys(session).get(key.record.id).last_used_at
    assert found is not None
    assert found[0].expires_at > now + timedelta(hours=23)
    assert found[0].last_used_at >= now
    # What a browser does with a key is a use of the key.
    assert last_used is not None
    assert last_used >= now


def test_a_login_sweeps_sessions_that_have_ended(guarded: Guarded) -> None:
    guarded.login(guarded.key("read", tenant="team").text)
    ended = key_digest(guarded.client.cookies["reflectory"])
    now = datetime.now(UTC)
    with guarded.site.database.write() as session:
        BrowserSessions(session).touch(ended, at=now, expires_at=now)
    guarded.client.cookies.clear()
    guarded.login(guarded.key("read").text)
    with guarded.site.database.write() as session:
        assert not BrowserSessions(session).end(ended)


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


def test_an_address_that_asks_too_much_waits_whatever_it_shows(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A slow machine takes longer for these requests than keys are remembered.
    monkeypatch.setattr("service.app.KeyRing", partial(KeyRing, seconds=600.0))
    key = create_key(site.database, name="k", scopes=("read",))
    working = create_key(site.database, name="w", scopes=("work",))
    right = {"Authorization": f"Bearer {key.text}"}
    machines = {"Authorization": f"Bearer {working.text}"}
    settings = site.settings.model_copy(update={"address_requests_per_minute": 6})
    app = create_app(settings)
    with TestClient(app, base_url=HOST, client=("203.0.113.9", 1)) as client:
        # A machine's key is known for a moment, and then counted no more.
        path = "/v1/agents/nobody/poll"
        assert client.post(path, headers=machines, json={}).status_code == 422
        shown = (right, {}, {"Authorization": "Bearer wrong"}, right, {}, right, {}, right)
        answers = [client.get("/v1/studies", headers=headers) for headers in shown]
        assert [a.status_code for a in answers] == [200, 401, 401, 200, 401, 429, 429, 429]
        assert 1 <= int(answers[-1].headers["Retry-After"]) <= 60
        assert client.get("/login").status_code == 429
        assert client.post(path, headers={}, json={}).status_code == 429
        assert client.post(path, headers=machines, json={}).status_code == 422
        # Other addresses are others.
        elsewhere = TestClient(app, base_url=HOST, client=("203.0.113.10", 1))
        assert elsewhere.get("/v1/studies", headers=right).status_code == 200


def test_addresses_of_one_ipv6_network_are_one() -> None:
    rates = RateLimits(requests=1, refusals=1, from_address=2)
    asked = [rates.arrival(f"2001:db8:1:2::{number}") for number in range(3)]
    assert asked[:2] == [None, None]
    assert asked[2] is not None
    assert rates.arrival("2001:db8:1:3::1") is None
    # An IPv4 address is the same one, however it is written.
    assert [rates.arrival("10.0.0.1"), rates.arrival("::ffff:10.0.0.1")] == [None, None]
    assert rates.arrival("10.0.0.1") is not None
    # Whoever comes by a Unix socket has no address.
    assert [rates.arrival("") for _ in range(9)] == [None] * 9
    assert [rates.refusal("") for _ in range(9)] == [None] * 9


@pytest.mark.parametrize(
    ("peer", "said", "address"),
    [
        ("10.0.0.1", ["1.2.3.4"], "1.2.3.4"),
        ("10.0.0.1", ["6.6.6.6, 1.2.3.4, 10.9.9.9"], "1.2.3.4"),
        ("10.0.0.1", ["6.6.6.6", "1.2.3.4"], "1.2.3.4"),
        ("10.0.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("192.0.2.7", ["1.2.3.4"], "1.2.3.4"),
        ("192.0.2.8", ["1.2.3.4"], "192.0.2.8"),
        ("203.0.113.9", ["1.2.3.4"], "203.0.113.9"),
    ],
)
def test_a_client_is_who_a_trusted_proxy_says_and_no_other(
    site: Site, peer: str, said: list[str], address: str
) -> None:
    """The same address is noted, logged and counted."""
    create_key(site.database, name="k", scopes=("read",))
    trusted = {"trusted_proxies": ("10.0.0.0/8", "192.0.2.7/32"), "refusals_per_minute": 1}
    with TestClient(
        create_app(site.settings.model_copy(update=trusted)), base_url=HOST, client=(peer, 1)
    ) as client:
        forwarded = [("X-Forwarded-For", one) for one in said]
        answer = client.post("/login", data={"key": "rfl_wrong"}, headers=forwarded)
        assert answer.status_code == 401
        with site.database.of(LOCAL).read() as session:
            assert Audit(session).page(limit=1).items[0].detail["address"] == address
        # It was told once.
        wrong = [*forwarded, ("Authorization", "Bearer wrong")]
        assert client.get("/v1/studies", headers=wrong).status_code == 429


def test_a_name_that_was_not_set_is_refused(site: Site) -> None:
    key = create_key(site.database, name="k", scopes=("read",))
    settings = site.settings.model_copy(update={"hosts": ("team.example",), "host": "0.0.0.0"})
    headers = {"Authorization": f"Bearer {key.text}"}
    with TestClient(create_app(settings), base_url="http://team.example") as client:
        for name, status in (
            ("team.example", 200),
            ("Team.Example:8443", 200),
            ("localhost:8080", 200),
            ("evil.example", 403),
            ("team.example.evil.example", 403),
        ):
            answer = client.get("/v1/studies", headers={**headers, "Host": name})
            assert answer.status_code == status, name
        assert "team.example" in answer.json()["detail"]
        # Whoever looks whether it lives may not know what it is called.
        assert client.get("/healthz", headers={"Host": "10.0.0.7:8080"}).status_code == 200


@pytest.mark.parametrize("path", ["/v1/agents", "/v1/agents/nobody/sync"])
def test_no_page_speaks_as_a_worker(guarded: Guarded, path: str) -> None:
    key = create_key(guarded.site.database, name="machine", scopes=("work",))
    headers = {"Authorization": f"Bearer {key.text}", "Origin": "http://evil.example"}
    answer = guarded.client.post(path, json={}, headers=headers)
    assert answer.status_code == 403
    assert "evil.example" in answer.json()["detail"]


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
        assert Keys(session).any_valid(at=datetime.now(UTC))
    settings = guarded.site.settings.model_copy(
        update={"database_url": "postgresql://127.0.0.1:1/nobody?connect_timeout=1"}
    )
    with TestClient(create_app(settings), base_url=HOST) as client:
        answer = client.get("/v1/studies")
        assert (answer.status_code, answer.headers["content-type"]) == (503, PROBLEM)
        assert client.get("/healthz").status_code == 200
