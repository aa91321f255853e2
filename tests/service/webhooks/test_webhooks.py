"""A user's server hears of a study's end: signed, once or more, and never from inside a network."""

import base64
import hashlib
import hmac
import json
import logging
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient

from search.dispatch.runs.webhook_payload import write_end
from search.studies.states import enter
from service.app import create_app
from service.auth.api_keys import create_key
from service.auth.principal import Scope
from service.data_dir.secrets import signing_secret
from service.webhooks import courier as sending_courier
from service.webhooks import sending
from service.webhooks.addresses import HostRefused, addresses_of, is_public
from service.webhooks.courier import PAUSES, Courier
from storage.endings import StudyCause
from storage.records import DeliveryRecord, StudyRecord, StudyState
from storage.repositories.studies import Studies
from storage.repositories.webhooks import Deliveries
from tests.service.receiving import Letter, Receiver
from tests.service.running import Server, wait_until
from tests.service.site import SMALL_SPEC, Site

QUICK = (0.05, 0.05, 0.05)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path / "data", webhook_private=True)
    yield site
    site.close()


def ended(
    site: Site,
    url: str,
    state: StudyState = StudyState.FINISHED,
    cause: StudyCause | None = None,
    detail: str | None = None,
) -> StudyRecord:
    """A study with a front of two points that has ended, as the coordinator ends one."""
    study = site.study(webhook={"url": url}, objectives=["quality", "parameters"])
    site.run(study)
    site.trial(study, 0, quality=0.75)
    site.trial(study, 1, quality=0.875)
    site.trial(study, 2, quality=0.5)
    with site.database.write() as session:
        at = datetime.now(UTC)
        record = enter(session, study.id, state, at=at, cause=cause, detail=detail)
        write_end(session, record)
    return record


def courier(site: Site, pauses: Sequence[float] = QUICK, **given: Any) -> Courier:
    options = {"allow_private": True, **given}
    return Courier(site.database, secret=signing_secret(site.settings), pauses=pauses, **options)


def delivery(site: Site, study: StudyRecord) -> DeliveryRecord:
    with site.database.read() as session:
        found = Deliveries(session).of_study(study.id)
    assert len(found) == 1
    return found[0]


def settled(site: Site, study: StudyRecord) -> DeliveryRecord:
    """The delivery once it is due no more."""
    wait_until(lambda: delivery(site, study).due_at is None, what="the end of a delivery")
    return delivery(site, study)


def verify(secret: str, letter: Letter) -> None:
    """As a receiver does, by the words of the specification alone."""
    key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    assert 24 <= len(key) <= 64
    sent = letter.headers
    signed = b".".join([sent["webhook-id"].encode(), sent["webhook-timestamp"].encode()])
    mac = hmac.new(key, signed + b"." + letter.body, hashlib.sha256)
    assert sent["webhook-signature"] == "v1," + base64.b64encode(mac.digest()).decode()
    age = datetime.now(UTC).timestamp() - int(sent["webhook-timestamp"])
    assert -1 <= age < 300


def test_a_delivery_is_signed_tells_the_front_and_is_repeated_until_it_is_heard(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with (
        TestClient(create_app(site.settings), base_url="http://localhost:8080") as client,
        Receiver(500, 429, 204) as receiver,
    ):
        study = ended(site, receiver.url)
        with courier(site):
            letters = receiver.wait(3)
            told = settled(site, study)
        secret = client.get("/v1/webhooks/secret").json()["secret"]
        listed = client.get(f"/v1/studies/{study.id}/webhooks").json()["items"]
        links = client.get(f"/v1/studies/{study.id}").json()["links"]
    for letter in letters:
        verify(secret, letter)
    assert {letter.id for letter in letters} == {told.id}
    assert {letter.path for letter in letters} == {"/hook?a=b"}
    assert len({letter.body for letter in letters}) == 1
    assert letters[0].headers["host"] == f"127.0.0.1:{receiver.port}"
    body = json.loads(letters[0].body)
    assert (body["type"], body["data"]["id"]) == ("study.finished", study.id)
    assert datetime.fromisoformat(body["timestamp"]) == study.finished_at
    assert body["data"]["progress"]["trials"]["complete"] == 3
    assert body["data"]["links"] == links
    front = body["data"]["front"]
    assert [objective["metric"] for objective in front["objectives"]] == ["accuracy", "parameters"]
    values = [(point["trial"], point["values"]["quality"]) for point in front["points"]]
    assert (front["size"], values) == (2, [(1, 0.875), (0, 0.75)])
    assert [item["state"] for item in listed] == ["delivered"]
    assert (listed[0]["id"], listed[0]["tries"], listed[0]["reason"]) == (told.id, 3, None)
    said = caplog.text + "".join(str(vars(record)) for record in caplog.records)
    assert "a webhook was not taken" in said
    assert "the receiver's own words" not in said
    assert secret not in said
    assert secret.removeprefix("whsec_") not in said


def test_each_tenant_has_a_secret_of_its_own_which_admins_are_told(site: Site) -> None:
    scopes: dict[str, Scope] = {"ours": "admin", "theirs": "admin", "reader": "read"}
    tenants = {"ours": "a", "theirs": "b", "reader": "a"}
    keys = {
        name: create_key(site.database.of(tenants[name]), name=name, scopes=[scope])
        for name, scope in scopes.items()
    }

    def asked(client: TestClient, name: str, path: str) -> httpx2.Response:
        return client.get(path, headers={"Authorization": f"Bearer {keys[name].text}"})

    with (
        TestClient(create_app(site.settings), base_url="http://localhost:8080") as client,
        Receiver() as receiver,
        courier(site),
    ):
        spec = {**SMALL_SPEC, "webhook": {"url": receiver.url}}
        bearer = {"Authorization": f"Bearer {keys['ours'].text}"}
        study_id = client.post("/v1/studies", json=spec, headers=bearer).json()["id"]
        with site.database.write() as session:
            write_end(session, enter(session, study_id, StudyState.FINISHED, at=datetime.now(UTC)))
        (letter,) = receiver.wait(1)
        path = "/v1/webhooks/secret"
        secrets = {name: asked(client, name, path).json()["secret"] for name in ("ours", "theirs")}
        assert asked(client, "reader", path).status_code == 403
        assert client.get(path).status_code == 401
        listed = f"/v1/studies/{study_id}/webhooks"
        assert asked(client, "theirs", listed).status_code == 404
        assert asked(client, "reader", listed).json()["items"][0]["id"] == letter.id
    verify(secrets["ours"], letter)
    with pytest.raises(AssertionError):
        verify(secrets["theirs"], letter)


def test_cancelled_and_failed_studies_are_told_too(site: Site) -> None:
    with Receiver() as receiver, courier(site):
        ended(site, receiver.url, StudyState.CANCELLED, StudyCause.CANCELLED, "the local user")
        ended(site, receiver.url, StudyState.FAILED, StudyCause.FAILED, "the data are gone")
        bodies = [json.loads(letter.body) for letter in receiver.wait(2)]
    found = {body["type"]: body["data"]["state_reason"] for body in bodies}
    assert found == {
        "study.cancelled": "cancelled by the local user",
        "study.failed": "the data are gone",
    }


def test_what_is_never_taken_is_given_up_with_the_reason(site: Site) -> None:
    with Receiver(503) as receiver, courier(site):
        told = settled(site, ended(site, receiver.url))
        assert len(receiver.letters) == 4
    assert told.delivered_at is None
    assert told.reason == "given up after 4 tries; the last: HTTP 503"


def test_what_nobody_foresaw_counts_as_a_try(
    site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object, **_given: object) -> None:
        raise httpx2.InvalidURL("the words of a library")

    monkeypatch.setattr(sending_courier, "send", broken)
    with courier(site):
        told = settled(site, ended(site, "http://127.0.0.1/hook"))
    assert told.delivered_at is None
    assert told.reason == "given up after 4 tries; the last: it cannot be sent: InvalidURL"
    assert caplog.text.count("a webhook cannot be sent") == 4


def test_the_pauses_last_about_a_day() -> None:
    assert 20 < sum(PAUSES) / 3600 < 30
    assert list(PAUSES) == sorted(PAUSES)


def test_a_receiver_that_is_gone_is_not_asked_again(site: Site) -> None:
    with Receiver(410) as receiver, courier(site):
        told = settled(site, ended(site, receiver.url))
        assert len(receiver.letters) == 1
    assert "410" in str(told.reason)


def test_a_redirect_is_not_followed(site: Site) -> None:
    with Receiver(307) as receiver, courier(site, pauses=()):
        told = settled(site, ended(site, receiver.url))
        assert [letter.path for letter in receiver.letters] == ["/hook?a=b"]
    assert "HTTP 307, which is not followed" in str(told.reason)


def test_an_answer_that_takes_too_long_is_not_waited_for(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "SECONDS", 0.3)
    with Receiver(0) as receiver, courier(site, pauses=()):
        told = settled(site, ended(site, receiver.url))
    assert "no answer within" in str(told.reason)


def test_what_is_being_sent_when_the_coordinator_stops_is_due_at_once(site: Site) -> None:
    with Receiver(0, 204) as receiver:
        study = ended(site, receiver.url)
        with courier(site):
            receiver.wait(1)
        told = delivery(site, study)
        assert told.due_at is not None
        assert told.due_at <= datetime.now(UTC)
        with courier(site):
            first, second = receiver.wait(2)[:2]
            assert settled(site, study).delivered_at is not None
    assert first.id == second.id


def test_of_several_coordinators_one_sends(site: Site) -> None:
    with Receiver() as receiver, ExitStack() as couriers:
        studies = [ended(site, receiver.url) for _ in range(8)]
        for _ in range(3):
            couriers.enter_context(courier(site))
        for study in studies:
            settled(site, study)
        assert len(receiver.letters) == len({letter.id for letter in receiver.letters}) == 8


def test_what_a_dead_coordinator_has_claimed_is_due_again(site: Site) -> None:
    with Receiver() as receiver:
        study = ended(site, receiver.url)
        with site.database.write() as session:
            soon = datetime.now(UTC) + timedelta(seconds=0.4)
            assert Deliveries(session).claim(delivery(site, study), until=soon)
        with courier(site):
            assert settled(site, study).delivered_at is not None
        assert len(receiver.letters) == 1
    assert delivery(site, study).tries == 2


def test_a_study_without_a_webhook_is_told_to_nobody(site: Site) -> None:
    study = site.study()
    with site.database.write() as session:
        write_end(session, enter(session, study.id, StudyState.FINISHED, at=datetime.now(UTC)))
    with site.database.read() as session:
        assert Deliveries(session).of_study(study.id) == []


def test_a_study_that_ends_again_is_told_again(site: Site) -> None:
    with Receiver() as receiver, courier(site):
        study = ended(site, receiver.url)
        settled(site, study)
        with site.database.write() as session:
            write_end(session, enter(session, study.id, StudyState.FINISHED, at=datetime.now(UTC)))
        first, second = receiver.wait(2)
    assert first.id != second.id


def test_a_deleted_study_is_told_no_more(site: Site) -> None:
    with Receiver(503) as receiver, courier(site, pauses=(600.0,)):
        study = ended(site, receiver.url)
        receiver.wait(1)
        with site.database.write() as session:
            Studies(session).delete(study.id)
        with site.database.read() as session:
            assert Deliveries(session).of_study(study.id) == []


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.0.0.1", "172.16.3.4", "192.168.1.1", "169.254.169.254", "0.0.0.0"),
        *("100.64.0.1", "224.0.0.1", "255.255.255.255", "240.0.0.1", "192.0.2.1", "198.18.0.1"),
        *("::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
        *("2002:7f00:1::", "2002:a00:1::1", "2001:0:4136:e378:8000:63bf:80ff:fffe"),
        *("fec0::1", "feff::1", "4000::1", "5f00::1", "64:ff9b:1::101:101", "3fff::1"),
    ],
)
def test_addresses_that_are_not_public_are_told_apart(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    ["1.1.1.1", "2606:4700::1111", "2a00:1450::1", "3ffe::1", "::ffff:1.1.1.1", "64:ff9b::101:101"],
)
def test_public_addresses_are_known_as_such(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "2130706433", "0x7f.1", "169.254.169.254:80"]
)
def test_a_private_address_is_refused_at_submit(tmp_path: Path, host: str) -> None:
    site = Site(tmp_path / "closed")
    document = {**SMALL_SPEC, "webhook": {"url": f"http://{host}/hook"}}
    with TestClient(create_app(site.settings), base_url="http://localhost:8080") as client:
        for query in ("", "?dry_run=true"):
            answer = client.post(f"/v1/studies{query}", json=document)
            assert answer.status_code == 422
            (fault,) = answer.json()["errors"]
            assert fault["path"] == "webhook.url"
            assert "does not resolve to public addresses" in fault["message"]
            assert "REFLECTORY_WEBHOOK_PRIVATE" in fault["message"]
    site.close()


Resolver = Callable[..., list[tuple[Any, ...]]]


def resolving(*addresses: str) -> Resolver:
    """A name server that answers with these for every name."""
    real = socket.getaddrinfo

    def resolve(_host: str, port: int, **given: Any) -> list[tuple[Any, ...]]:
        return [entry for address in addresses for entry in real(address, port, **given)]

    return resolve


def test_one_private_address_among_others_is_enough_to_refuse(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Which one it is, is for the log alone: names inside our network are not to be asked for."""
    monkeypatch.setattr(socket, "getaddrinfo", resolving("1.1.1.1", "10.1.2.3"))
    caplog.set_level(logging.INFO, logger="service.webhooks.addresses")
    with pytest.raises(HostRefused) as refused:
        addresses_of("https://hooks.example/", allow_private=False)
    assert "10.1.2.3" not in str(refused.value)
    assert [getattr(record, "address", None) for record in caplog.records] == ["10.1.2.3"]
    assert list(addresses_of("https://hooks.example/", allow_private=True)) == [
        "1.1.1.1",
        "10.1.2.3",
    ]


def test_a_name_that_has_become_private_since_is_not_spoken_to(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as receiver:
        study = ended(site, f"http://hooks.example:{receiver.port}/hook")
        monkeypatch.setattr(socket, "getaddrinfo", resolving("127.0.0.1"))
        with courier(site, pauses=(), allow_private=False):
            told = settled(site, study)
        assert receiver.letters == []
    assert "does not resolve to public addresses" in str(told.reason)


def test_what_is_connected_to_is_what_was_resolved_and_checked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver() as receiver:
        study = ended(site, f"http://hooks.example:{receiver.port}/hook")
        names: list[str] = []
        resolve = resolving("127.0.0.1")

        def once(host: str, port: int, **given: Any) -> list[tuple[Any, ...]]:
            names.append(host)
            return resolve(host, port, **given)

        monkeypatch.setattr(socket, "getaddrinfo", once)
        with courier(site):
            settled(site, study)
        assert [name for name in names if "hooks" in name] == ["hooks.example"]
        (letter,) = receiver.letters
        assert letter.headers["host"] == f"hooks.example:{receiver.port}"


def certificate(folder: Path, name: str) -> ssl.SSLContext:
    """A server's side of TLS under a name, which vouches for itself: `folder/cert.pem`."""
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    names = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    subprocess.run([*command.split(), *files, *names], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return context


@pytest.mark.parametrize(("name", "taken"), [("hooks.example", True), ("other.example", False)])
def test_tls_is_held_against_the_name_and_not_the_address(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, taken: bool
) -> None:
    context = certificate(tmp_path, "hooks.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
    monkeypatch.setattr(socket, "getaddrinfo", resolving("127.0.0.1"))
    with Receiver(context=context) as receiver, courier(site, pauses=()):
        told = settled(site, ended(site, f"https://{name}:{receiver.port}/hook"))
        assert len(receiver.letters) == taken
    assert (told.delivered_at is not None) == taken
    if not taken:
        assert "certificate" in str(told.reason)


def test_a_certificate_that_nobody_vouches_for_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    context = certificate(tmp_path, "hooks.example")
    monkeypatch.setattr(socket, "getaddrinfo", resolving("127.0.0.1"))
    with Receiver(context=context) as receiver, courier(site, pauses=()):
        told = settled(site, ended(site, f"https://hooks.example:{receiver.port}/hook"))
        assert receiver.letters == []
    assert "certificate" in str(told.reason)


def test_a_server_that_is_killed_after_a_study_has_ended_tells_it_when_it_is_back(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = Server(tmp_path / "data", environment={"REFLECTORY_WEBHOOK_PRIVATE": "true"})
    try:
        server.start()
        study_id = server.submit(
            {
                **SMALL_SPEC,
                "budget": {"trials": 1, "epochs": 1},
                "objectives": ["quality", "parameters"],
                "webhook": {"url": f"http://127.0.0.1:{port}/hook"},
            }
        )
        server.wait(study_id)
        path = f"/v1/studies/{study_id}/webhooks"
        wait_until(lambda: server.get(path)["items"][0]["reason"], what="a try that failed")
        server.kill_everything()
        with Receiver(port=port) as receiver:
            server.start()
            (letter,) = receiver.wait(1)
            told = wait_until(
                lambda: [one for one in server.get(path)["items"] if one["delivered_at"]],
                what="a delivery",
            )
            verify(server.get("/v1/webhooks/secret")["secret"], letter)
        assert [one["id"] for one in told] == [letter.id]
        assert told[0]["tries"] >= 2
        body = json.loads(letter.body)
        assert (body["type"], body["data"]["id"]) == ("study.finished", study_id)
    finally:
        server.close()
