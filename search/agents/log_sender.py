"""Sends the logs of attempts to the service while they grow, from wherever the attempts run.

Whoever supervises an attempt's process sends its log, so that the last words of one that was killed
arrive too. The attempt's own lease token is the credential, also for a while after its end.
"""

import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import final

import httpx2

from search.agents.api_client import api_client

_log = logging.getLogger(__name__)

MOST_BYTES = 1 << 20
"""How much of a log's end is kept."""

CUT = "Log-Cut"
"""The header that says how many bytes stood before what is sent."""

_EVERY_SECONDS = 10.0
_TICK_SECONDS = 0.5
_GIVEN_UP_SECONDS = 300.0
"""How long the last part of a log is tried to be sent after its attempt's end."""


@dataclass
class _Watched:
    token: str
    path: Path
    due_at: float
    sent_size: int = 0
    ended_at: float | None = None


@final
class LogSender:
    """Sends from a thread of its own; nothing waits for it. Safe to call from several threads."""

    def __init__(self, url: str, *, every_seconds: float = _EVERY_SECONDS) -> None:
        """`url` is where the API answers."""
        self._every_seconds = every_seconds
        self._lock = threading.Condition()
        self._watched: dict[str, _Watched] = {}
        self._closed = False
        self._client = api_client(url, "/v1/attempts", timeout=30.0)
        self._thread = threading.Thread(target=self._work, name="log sender", daemon=True)
        self._thread.start()

    def watch(self, attempt_id: str, *, token: str, path: Path) -> None:
        """Send this file from now on, whenever it has grown for a while."""
        with self._lock:
            self._watched[attempt_id] = _Watched(
                token, path, due_at=time.monotonic() + self._every_seconds
            )
            self._lock.notify_all()

    def ended(self, attempt_id: str) -> None:
        """Nothing more will be written: send what is left, and forget the file."""
        with self._lock:
            watched = self._watched.get(attempt_id)
            if watched is not None:
                watched.ended_at = watched.due_at = time.monotonic()
                self._lock.notify_all()

    def close(self, *, timeout_seconds: float = 5.0) -> None:
        """Send what is left of all, for as long as that may take."""
        with self._lock:
            self._closed = True
            for watched in self._watched.values():
                watched.ended_at = watched.due_at = time.monotonic()
            self._lock.notify_all()
        self._thread.join(timeout_seconds)

    def _work(self) -> None:
        with self._client:
            while True:
                with self._lock:
                    if self._closed and not self._watched:
                        return
                    now = time.monotonic()
                    due = [(name, one) for name, one in self._watched.items() if one.due_at <= now]
                    if not due:
                        self._lock.wait(_TICK_SECONDS if self._watched else None)
                        continue
                for name, watched in due:
                    self._send_and_plan(name, watched)

    def _send_and_plan(self, attempt_id: str, watched: _Watched) -> None:
        ended_at = watched.ended_at
        is_sent = self._send(attempt_id, watched)
        now = time.monotonic()
        with self._lock:
            over = ended_at is not None and (is_sent or now - ended_at > _GIVEN_UP_SECONDS)
            if over:
                self._watched.pop(attempt_id, None)
            elif watched.ended_at == ended_at:
                watched.due_at = now + (_TICK_SECONDS if ended_at else self._every_seconds)

    def _send(self, attempt_id: str, watched: _Watched) -> bool:
        """Send the file's end where it has grown; false: to be tried again."""
        try:
            size = watched.path.stat().st_size
            if size == watched.sent_size:
                return True
            content, cut = last_part(watched.path, size)
        except OSError as error:
            _log.warning("a log cannot be read", extra={"reason": error})
            return True
        headers = {"Authorization": f"Bearer {watched.token}", CUT: str(cut)}
        try:
            response = self._client.put(f"/{attempt_id}/log", content=content, headers=headers)
        except httpx2.TransportError as error:
            _log.warning("a log was not sent", extra={"reason": error})
            return False
        if response.is_server_error:
            return False
        if not response.is_success:
            _log.warning("a log was refused", extra={"status": response.status_code})
        watched.sent_size = size
        return True


def last_part(path: Path, size: int) -> tuple[bytes, int]:
    """The end of the first `size` bytes of a log, from a line's beginning, and what is before."""
    cut = max(0, size - MOST_BYTES)
    with path.open("rb") as log:
        log.seek(cut)
        content = log.read(size - cut)
    if cut:
        # Half a line, and perhaps half a character, says nothing.
        broken, newline, rest = content.partition(b"\n")
        if newline:
            return rest, cut + len(broken) + 1
    return content, cut
