"""What a machine has to say and has not been heard to say yet, attempt by attempt, in order.

Words wait here until the service has taken them. They wait for nobody: what is urgent (a slot that
is free, an attempt that waits for its verdict) goes at once, with all else that is there, and the
rest within a second.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

from search.agents.protocol import (
    MOST_INLINE_BYTES,
    MOST_ITEMS,
    MOST_JSON_BYTES,
    MOST_SYNC_BYTES,
    Refusal,
)

PACE_SECONDS: Final = 1.0
"""How long what is not urgent may wait for company."""
MOST_WAITING_BYTES: Final = 64 << 20
"""How much may wait in all before processes have to wait with what they say."""
_FULL_PAUSE_SECONDS: Final = 1.0
_RENEWING: Final = frozenset({"epoch"})
"""Kinds of words that renew their attempt's lease, as its beat does. No others: a file is stored as
often as it changes, and an epoch may take longer than a lease."""
_JSON_ROOM: Final = 64 << 10
"""Of a sync's JSON, for what stands around its items."""


@dataclass(eq=False)
class Word:
    """One item, or a large file that goes by a call of its own."""

    attempt: str
    item: Mapping[str, Any]
    report: str = ""
    """JSON of the item's `report` or `completion`, passed on as it is."""
    content: bytes | None = None
    urgent: bool = False
    waits: bool = False
    """Whether the attempt waits until this is taken."""
    replaces: str | None = None
    """Words of the same kind that have not gone yet are void: a newer one says it all."""
    text: str = field(init=False, default="")

    def __post_init__(self) -> None:
        """Write the item as it goes."""
        whole = json.dumps({"attempt": self.attempt, **self.item})
        if self.report:
            name = "completion" if self.item["kind"] == "end" else "report"
            whole = f'{whole[:-1]}, "{name}": {self.report}}}'
        self.text = whole

    @property
    def is_large(self) -> bool:
        """Whether it does not fit into a sync."""
        return self.content is not None and len(self.content) > MOST_INLINE_BYTES

    @property
    def size(self) -> int:
        """Bytes that it takes while it waits."""
        return len(self.text) + len(self.content or b"")


@dataclass
class _Attempt:
    token: str
    words: deque[Word] = field(default_factory=deque[Word])
    since: float = 0.0
    """When the first of the words came."""
    beat: Mapping[str, float] | None = None
    """What its process said last of how it is, since that was passed on."""
    last_beat: Mapping[str, float] = field(
        default_factory=lambda: {"stood_still_seconds": 0.0, "held_seconds": 0.0}
    )
    """The same, passed on or not."""
    told_at: float = 0.0
    """When its lease was last renewed, as far as is known here."""
    held_until: float = 0.0
    """Nothing of it goes before: a file is on its way, or there was no room."""
    dropped: bool = False
    """Nobody takes its words any more, but that its slot is free."""
    closed: bool = False
    """Its last word is among the words."""


@dataclass(frozen=True)
class Batch:
    """What goes with one sync."""

    body: bytes
    words: tuple[Word, ...]
    beats: frozenset[str]


@final
class Outbox:
    """Holds words until they are taken. Safe to call from several threads."""

    def __init__(self, session: str, *, lease_seconds: float) -> None:
        self._session = session
        self.lease_seconds = lease_seconds
        self.alone = 0
        """How many words still go alone: there is one among them that the service cannot read."""
        self._changed = threading.Condition()
        self._attempts: dict[str, _Attempt] = {}
        self._bytes = 0
        self._closed = False

    def open(self, attempt_id: str, token: str) -> None:
        """Take words of an attempt from here on, whose lease was just renewed."""
        with self._changed:
            self._attempts[attempt_id] = _Attempt(token, told_at=time.monotonic())

    def token(self, attempt_id: str) -> str | None:
        """An attempt's lease token, while words of it are taken."""
        with self._changed:
            attempt = self._attempts.get(attempt_id)
            return None if attempt is None else attempt.token

    def add(self, word: Word, *, last: bool = False) -> None:
        """Have a word said, which waits for nothing. `last`: nothing of the attempt follows."""
        with self._changed:
            attempt = self._attempts.get(word.attempt)
            if attempt is None or (attempt.dropped and not last):
                return
            if word.replaces is not None:
                self._void(attempt, word.replaces)
            if not attempt.words:
                attempt.since = time.monotonic()
            attempt.words.append(word)
            attempt.closed = attempt.closed or last
            self._bytes += word.size
            self._changed.notify_all()

    def has_room(self, *, within_seconds: float) -> bool:
        """Whether more than is there may be said; waits so long for it.

        Processes are asked to wait, and never the thread that has the words taken: nobody else
        makes room.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: self._bytes < MOST_WAITING_BYTES or self._closed, within_seconds
            )

    def beat(
        self,
        attempt_id: str,
        *,
        stood_still_seconds: float | None = None,
        held_seconds: float | None = None,
    ) -> None:
        """Note that an attempt is alive; what is not given is as it was said last."""
        with self._changed:
            attempt = self._attempts.get(attempt_id)
            if attempt is not None and not attempt.dropped:
                said = {"stood_still_seconds": stood_still_seconds, "held_seconds": held_seconds}
                news = {name: value for name, value in said.items() if value is not None}
                attempt.beat = attempt.last_beat = {**attempt.last_beat, **news}
                self._changed.notify_all()

    def drop(self, attempt_id: str, *, keep_exit: bool = True) -> None:
        """Forget what an attempt has to say: nobody takes it. That its slot is free stays."""
        with self._changed:
            attempt = self._attempts.get(attempt_id)
            if attempt is None:
                return
            kept = [word for word in attempt.words if keep_exit and word.item["kind"] == "exit"]
            self._bytes -= sum(word.size for word in attempt.words if word not in kept)
            attempt.words = deque(kept)
            attempt.beat, attempt.held_until, attempt.dropped = None, 0.0, True
            if attempt.closed and not kept:
                del self._attempts[attempt_id]
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        """Return when something is due, or after so long."""
        until = time.monotonic() + seconds
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                due = min(self._due_at(), until)
                if due <= now:
                    return
                self._changed.wait(due - now)

    def large(self) -> list[Word]:
        """Files that are to go by calls of their own now; nothing else of their attempts goes."""
        now = time.monotonic()
        with self._changed:
            found = [
                attempt.words[0]
                for attempt in self._attempts.values()
                if attempt.words and attempt.words[0].is_large and attempt.held_until <= now
            ]
            for word in found:
                self._attempts[word.attempt].held_until = float("inf")
            return found

    def uploaded(self, word: Word, *, taken: bool) -> None:
        """A large file was stored; or it was not, and is to be tried again in a while."""
        with self._changed:
            attempt = self._attempts.get(word.attempt)
            if attempt is not None:
                attempt.held_until = 0.0 if taken else time.monotonic() + _FULL_PAUSE_SECONDS
                if taken:
                    self._remove(attempt, word)
            self._changed.notify_all()

    def batch(self) -> Batch | None:
        """All that may go now and fits into one sync; null where there is nothing."""
        now = time.monotonic()
        words: list[Word] = []
        tokens: dict[str, str] = {}
        beats: dict[str, Mapping[str, float]] = {}
        json_room, bytes_room = MOST_JSON_BYTES - _JSON_ROOM, MOST_SYNC_BYTES
        with self._changed:
            for attempt_id, attempt in self._attempts.items():
                is_renewed = now - attempt.told_at < self.lease_seconds / 6
                if attempt.beat is not None and not is_renewed:
                    beats[attempt_id] = attempt.beat
                    tokens[attempt_id] = attempt.token
                    json_room -= len(attempt_id) * 2 + len(attempt.token) + 120
                if attempt.held_until > now:
                    continue
                for word in attempt.words:
                    size = len(word.content or b"")
                    fits = len(word.text) <= json_room and size <= bytes_room
                    if word.is_large or not fits or len(words) >= (1 if self.alone else MOST_ITEMS):
                        break
                    json_room -= len(word.text) + 2
                    bytes_room -= size
                    words.append(word)
                    tokens[attempt_id] = attempt.token
        if not words and not beats:
            return None
        head = json.dumps({"session": self._session, "tokens": tokens, "beats": beats})
        items = ", ".join(word.text for word in words)
        text = f'{head[:-1]}, "items": [{items}]}}'.encode()
        contents = (word.content for word in words if word.content is not None)
        body = b"".join((len(text).to_bytes(4, "big"), text, *contents))
        return Batch(body, tuple(words), frozenset(beats))

    def taken(self, batch: Batch, refused: Mapping[int, Refusal]) -> list[Word]:
        """A sync was answered: forget what went with it, but what is to be said again.

        Returns the words that were taken.
        """
        now = time.monotonic()
        again: set[str] = set()
        done: list[Word] = []
        with self._changed:
            for place, word in enumerate(batch.words):
                attempt = self._attempts.get(word.attempt)
                refusal = refused.get(place)
                if refusal is not None and refusal.why == "full":
                    again.add(word.attempt)
                if word.attempt in again:
                    if attempt is not None:
                        attempt.held_until = now + _FULL_PAUSE_SECONDS
                    continue
                if refusal is None:
                    done.append(word)
                if attempt is not None:
                    if refusal is None and word.item["kind"] in _RENEWING:
                        attempt.told_at = now
                    self._remove(attempt, word)
            for attempt_id in batch.beats:
                if attempt_id in self._attempts:
                    attempt = self._attempts[attempt_id]
                    attempt.told_at, attempt.beat = now, None
            self._changed.notify_all()
        return done

    def is_empty(self) -> bool:
        """Whether all was heard."""
        with self._changed:
            return not any(attempt.words for attempt in self._attempts.values())

    def close(self) -> None:
        """Keep nobody waiting any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _due_at(self) -> float:
        """When something is to go, by the monotonic clock."""
        due = float("inf")
        for attempt in self._attempts.values():
            if attempt.beat is not None:
                due = min(due, attempt.told_at + self.lease_seconds / 3)
            if attempt.words:
                urgent = any(word.urgent or word.is_large for word in attempt.words)
                at = attempt.since + (0.0 if urgent else PACE_SECONDS)
                due = min(due, max(at, attempt.held_until))
        return due

    def _void(self, attempt: _Attempt, what: str) -> None:
        """Forget words that a newer one replaces; one that may be on its way stays."""
        held = attempt.held_until == float("inf")
        old = [word for word in list(attempt.words)[int(held) :] if word.replaces == what]
        for word in old:
            self._remove(attempt, word)

    def _remove(self, attempt: _Attempt, word: Word) -> None:
        if word in attempt.words:
            attempt.words.remove(word)
            self._bytes -= word.size
            if attempt.words:
                attempt.since = time.monotonic()
            elif attempt.closed:
                self._attempts.pop(word.attempt, None)
