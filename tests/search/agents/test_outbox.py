"""What an agent has to say: in order, each word once, in batches, and kept until it is taken."""

import json
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from search.agents.outbox import MOST_WAITING_BYTES, Batch, Outbox, Word
from search.agents.protocol import MOST_INLINE_BYTES, MOST_SYNC_BYTES, Refusal, Sync


@pytest.fixture
def outbox() -> Outbox:
    outbox = Outbox("0a1b2c3d4e5f6071", lease_seconds=60.0)
    for attempt in ("a", "b"):
        outbox.open(attempt, f"token-of-{attempt}")
    return outbox


def exit_of(attempt: str) -> Word:
    return Word(attempt, {"kind": "exit", "returncode": 0, "detail": "ended"}, urgent=True)


def artifact(attempt: str, content: bytes, role: str = "resume") -> Word:
    item = {"kind": "artifact", "role": role, "sha256": "0" * 64, "size": len(content)}
    return Word(attempt, item, content=content, replaces=f"artifact {role}")


def progress(attempt: str, received: int) -> Word:
    report = json.dumps({"file": "f", "received": received, "total": 9})
    return Word(attempt, {"kind": "progress"}, report=report)


def sync_of(batch: Batch | None) -> tuple[Sync, bytes]:
    assert batch is not None
    length = int.from_bytes(batch.body[:4], "big")
    return Sync.model_validate_json(batch.body[4 : 4 + length]), batch.body[4 + length :]


def refusal(attempt: str, item: int, why: Any) -> dict[int, Refusal]:
    return {item: Refusal(attempt=attempt, item=item, why=why, detail="")}


def test_a_batch_is_a_sync_with_the_words_of_all_attempts_in_their_order(outbox: Outbox) -> None:
    outbox.add(progress("a", 1))
    outbox.add(artifact("b", b"bytes"))
    outbox.add(progress("a", 2))
    sync, content = sync_of(outbox.batch())
    assert [(item.attempt, item.kind) for item in sync.items] == [
        ("a", "progress"),
        ("a", "progress"),
        ("b", "artifact"),
    ]
    assert content == b"bytes"
    assert sync.tokens == {"a": "token-of-a", "b": "token-of-b"}


def test_words_go_again_until_they_are_taken(outbox: Outbox) -> None:
    outbox.add(progress("a", 1))
    first, again = outbox.batch(), outbox.batch()
    assert first is not None
    assert again is not None
    assert again.body == first.body
    outbox.add(progress("a", 2))
    assert outbox.taken(first, {}) == list(first.words)
    sync, _ = sync_of(outbox.batch())
    assert [item.report.received for item in sync.items if item.kind == "progress"] == [2]


def test_where_there_is_no_room_a_word_waits_with_all_that_came_after_it(outbox: Outbox) -> None:
    for word in (artifact("a", b"x"), progress("a", 1), progress("b", 1)):
        outbox.add(word)
    batch = outbox.batch()
    assert batch is not None
    taken = outbox.taken(batch, refusal("a", 0, "full"))
    assert [word.attempt for word in taken] == ["b"]
    assert outbox.batch() is None
    outbox.wait(10.0)
    sync, _ = sync_of(outbox.batch())
    assert [item.kind for item in sync.items] == ["artifact", "progress"]


def test_a_newer_file_takes_the_place_of_one_that_has_not_gone(outbox: Outbox) -> None:
    for content in (b"first", b"second"):
        outbox.add(artifact("a", content))
    outbox.add(artifact("a", b"third", role="checkpoint"))
    _, content = sync_of(outbox.batch())
    assert content == b"secondthird"


def test_a_large_file_goes_alone_and_before_what_came_after_it(outbox: Outbox) -> None:
    large = artifact("a", b"x" * (MOST_INLINE_BYTES + 1))
    outbox.add(large)
    outbox.add(progress("a", 1))
    outbox.add(progress("b", 1))
    assert outbox.large() == [large]
    assert outbox.large() == []
    sync, _ = sync_of(outbox.batch())
    assert [item.attempt for item in sync.items] == ["b"]
    outbox.uploaded(large, taken=True)
    sync, _ = sync_of(outbox.batch())
    assert {item.attempt for item in sync.items} == {"a", "b"}


def test_no_batch_is_larger_than_a_sync(outbox: Outbox) -> None:
    for number in range(2 * MOST_SYNC_BYTES // MOST_INLINE_BYTES):
        outbox.add(artifact("a", bytes(MOST_INLINE_BYTES), role=f"role-{number}"))
    sizes: list[int] = []
    while (batch := outbox.batch()) is not None:
        sizes.append(sum(len(word.content or b"") for word in batch.words))
        outbox.taken(batch, {})
    assert sizes == [MOST_SYNC_BYTES, MOST_SYNC_BYTES]


def test_what_is_urgent_goes_at_once_and_the_rest_waits_for_company(outbox: Outbox) -> None:
    outbox.add(progress("a", 1))
    begun = time.monotonic()
    outbox.wait(0.2)
    assert time.monotonic() - begun >= 0.2
    outbox.add(exit_of("b"))
    outbox.wait(60.0)
    sync, _ = sync_of(outbox.batch())
    assert {item.attempt for item in sync.items} == {"a", "b"}


def test_an_attempt_that_has_said_nothing_for_a_while_has_its_beat_passed_on() -> None:
    outbox = Outbox("0a1b2c3d4e5f6071", lease_seconds=0.3)
    outbox.open("a", "token")
    outbox.beat("a", stood_still_seconds=0.0, held_seconds=1.0)
    assert outbox.batch() is None
    outbox.wait(60.0)
    batch = outbox.batch()
    assert batch is not None
    assert sync_of(batch)[0].beats["a"].held_seconds == 1.0
    outbox.taken(batch, {})
    assert outbox.batch() is None


def epoch(attempt: str) -> Word:
    report = {"epoch": 1, "train_loss": 1.0, "validation": 0.5, "seconds": 0.1}
    return Word(attempt, {"kind": "epoch", "waits": False}, report=json.dumps(report))


@pytest.mark.parametrize(
    ("word", "renews"),
    [(epoch("a"), True), (artifact("a", b"bytes"), False), (progress("a", 1), False)],
    ids=["epoch", "file", "progress"],
)
def test_a_beat_waits_only_for_words_that_renew_the_lease(
    monkeypatch: pytest.MonkeyPatch, word: Word, *, renews: bool
) -> None:
    """An epoch may take longer than a lease, with its state stored every second."""
    now = 1000.0
    monkeypatch.setattr("search.agents.outbox.time", SimpleNamespace(monotonic=lambda: now))
    outbox = Outbox("0a1b2c3d4e5f6071", lease_seconds=30.0)
    outbox.open("a", "token")
    now += 6.0
    outbox.add(word)
    batch = outbox.batch()
    assert batch is not None
    outbox.taken(batch, {})
    now += 1.0
    outbox.beat("a", stood_still_seconds=0.0, held_seconds=7.0)
    assert (outbox.batch() is None) == renews


def test_of_an_attempt_that_is_over_only_its_exit_is_said(outbox: Outbox) -> None:
    outbox.add(progress("a", 1))
    outbox.add(exit_of("a"), last=True)
    outbox.drop("a")
    outbox.add(progress("a", 2))
    batch = outbox.batch()
    sync, _ = sync_of(batch)
    assert [item.kind for item in sync.items] == ["exit"]
    assert batch is not None
    outbox.taken(batch, {})
    outbox.drop("a")
    assert outbox.is_empty()


def test_there_is_no_room_while_too_much_waits_and_there_is_when_it_is_heard(
    outbox: Outbox,
) -> None:
    large = [artifact("a", bytes(16 << 20), role=str(number)) for number in range(4)]
    assert sum(word.size for word in large) >= MOST_WAITING_BYTES
    for word in large:
        assert outbox.has_room(within_seconds=0.0)
        outbox.add(word)
    assert not outbox.has_room(within_seconds=0.1)
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(outbox.has_room(within_seconds=60.0)))
    thread.start()
    outbox.add(progress("b", 1))  # What the machine says itself waits for nothing.
    assert outbox.large() == large[:1]
    outbox.uploaded(large[0], taken=True)
    thread.join()
    assert found == [True]


def test_a_beat_without_numbers_repeats_the_last_ones(outbox: Outbox) -> None:
    outbox = Outbox("0a1b2c3d4e5f6071", lease_seconds=0.0)
    outbox.open("a", "token-of-a")
    beats: list[Any] = []
    for given in ({}, {"stood_still_seconds": 2.0, "held_seconds": 3.0}, {}):
        outbox.beat("a", **given)
        batch = outbox.batch()
        sync, _ = sync_of(batch)
        beats.append(sync.beats["a"].model_dump())
        assert batch is not None
        outbox.taken(batch, {})
    first, second, third = beats
    assert set(first.values()) == {0.0}
    assert third == second == {"stood_still_seconds": 2.0, "held_seconds": 3.0}
