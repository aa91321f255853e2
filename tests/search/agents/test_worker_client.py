import socket
import threading
import time
from collections.abc import Iterator

import pytest

from search.agents.worker_client import WorkerLink
from search.errors import SearchError, WorkerRefused
from search.tasks import Digits
from search.training.jobs import Completion, EpochReport, Heartbeat, PrepareJob, Progress, Verdict
from tests.search.attempt_api import TOKEN, AttemptApi

EPOCH = EpochReport(epoch=1, train_loss=0.5, validation=0.9, seconds=1.0)


@pytest.fixture
def api() -> Iterator[AttemptApi]:
    with AttemptApi(PrepareJob(task=Digits())) as api:
        yield api


def link_to(api: AttemptApi, *, lease_seconds: float = 10.0, token: str = TOKEN) -> WorkerLink:
    return WorkerLink(api.url, "a1", token, lease_seconds=lease_seconds)


def test_what_is_said_arrives_as_it_was_said(api: AttemptApi) -> None:
    with link_to(api) as link:
        assert link.job() == PrepareJob(task=Digits())
        link.heartbeat(Heartbeat(stood_still_seconds=2.5))
        link.progress(Progress(file="a.gz", received=3, total=10))
        link.epoch(EPOCH)
        link.complete(Completion(outcome="complete", quality=0.5))
    assert [(said.what, said.body) for said in api.said] == [
        ("heartbeat", Heartbeat(stood_still_seconds=2.5)),
        ("progress", Progress(file="a.gz", received=3, total=10)),
        ("metrics", EPOCH),
        ("complete", Completion(outcome="complete", quality=0.5)),
    ]


def test_an_answer_at_once_costs_one_request(api: AttemptApi) -> None:
    with link_to(api) as link:
        link.epoch(EPOCH)
    assert api.asked == ["POST metrics"]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_server_in_trouble_is_asked_again(api: AttemptApi, status: int) -> None:
    api.fault = lambda _method, _what: status if len(api.asked) < 3 else None
    with link_to(api) as link:
        assert link.epoch(EPOCH).verdict == "continue"
    assert api.asked == ["POST metrics"] * 3
    assert len(api.said) == 1


def test_a_server_that_comes_up_later_is_found() -> None:
    with AttemptApi() as gone:
        port = int(gone.url.rpartition(":")[2])

    def come_up() -> None:
        time.sleep(0.3)
        answer = Verdict(lease_seconds=30.0).model_dump_json()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(answer)}\r\n\r\n"
        with socket.create_server(("127.0.0.1", port)) as listener:
            # The first who is let in meets a connection that breaks; the next gets an answer.
            listener.accept()[0].close()
            with listener.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall((head + answer).encode())

    server = threading.Thread(target=come_up)
    server.start()
    with WorkerLink(gone.url, "a1", TOKEN, lease_seconds=30.0) as link:
        assert link.heartbeat(Heartbeat()).lease_seconds == 30.0
    server.join()


def test_a_server_that_never_answers_is_given_up_when_the_lease_is_over() -> None:
    with AttemptApi() as gone:
        pass
    begun = time.monotonic()
    with (
        WorkerLink(gone.url, "a1", TOKEN, lease_seconds=0.6) as link,
        pytest.raises(WorkerRefused, match=r"unreachable for the lease time of 0\.6 s"),
    ):
        link.heartbeat(Heartbeat())
    assert time.monotonic() - begun >= 0.3


def test_a_call_is_given_up_although_heartbeats_go_through(api: AttemptApi) -> None:
    api.lease_seconds = 0.5
    api.fault = lambda _method, what: 503 if what == "artifacts/resume" else None
    with link_to(api, lease_seconds=0.5) as link:
        link.heartbeat(Heartbeat())
        with pytest.raises(WorkerRefused, match="status 503"):
            link.get_artifact("resume")


@pytest.mark.parametrize("status", [401, 404, 409])
def test_a_lease_that_is_over_is_not_argued_about(api: AttemptApi, status: int) -> None:
    api.fault = lambda _method, _what: status
    with link_to(api) as link, pytest.raises(WorkerRefused, match=f"answered {status}"):
        link.epoch(EPOCH)
    assert api.asked == ["POST metrics"]


def test_a_wrong_token_is_refused_by_the_service_and_not_repeated(api: AttemptApi) -> None:
    with link_to(api, token="another") as link, pytest.raises(WorkerRefused):
        link.job()
    assert api.asked == ["GET job"]


def test_an_answer_outside_the_protocol_is_told_as_it_is(api: AttemptApi) -> None:
    api.fault = lambda _method, _what: 422
    with link_to(api) as link, pytest.raises(SearchError, match="answered 422: no") as told:
        link.epoch(EPOCH)
    assert not isinstance(told.value, WorkerRefused)


def test_artifacts_come_back_byte_for_byte(api: AttemptApi) -> None:
    content = bytes(range(256)) * 1000
    with link_to(api) as link:
        assert link.get_artifact("resume") is None
        assert link.put_artifact("resume", content).size == len(content)
        assert link.get_artifact("resume") == content


def test_an_upload_that_broke_off_is_sent_again_whole(api: AttemptApi) -> None:
    api.fault = lambda _method, _what: 503 if len(api.asked) < 2 else None
    with link_to(api) as link:
        link.put_artifact("checkpoint", b"weights")
    assert api.artifacts == {"checkpoint": b"weights"}


def test_a_verdict_renews_the_lease_for_as_long_as_it_says(api: AttemptApi) -> None:
    api.lease_seconds = 100.0
    with link_to(api, lease_seconds=5.0) as link:
        assert 0 < link.seconds_left() <= 5
        link.heartbeat(Heartbeat())
        assert 5 < link.seconds_left() <= 100


def test_all_calls_share_one_connection(api: AttemptApi) -> None:
    with link_to(api) as link:
        for _ in range(5):
            link.heartbeat(Heartbeat())
        link.get_artifact("resume")
    assert len(api.connections) == 1
