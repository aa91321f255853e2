"""Calls of a worker, as in `search.training.jobs`: typed, with one rule for retries."""

import hashlib
import logging
import random
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from io import BufferedRandom
from typing import final

import httpx2
from pydantic import TypeAdapter

from models.spec import Spec
from search.agents.api_client import ApiLink, may_pass, sent_json
from search.errors import SearchError, WorkerRefused
from search.training.jobs import (
    Completion,
    EpochReport,
    Heartbeat,
    Job,
    MeasurementReport,
    Progress,
    Stored,
    Verdict,
)

_log = logging.getLogger(__name__)

_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_OVER = frozenset({401, 404, 409})
"""What the server says to a worker whose lease ended, was taken over or never was."""
_FAULTS = (httpx2.TimeoutException, httpx2.NetworkError, httpx2.RemoteProtocolError)
"""Nothing answered, or the connection broke: the server may be starting again."""
_FIRST_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0
_SLOWEST_BYTES_PER_SECOND = 4 << 20
"""How fast bytes are stored at least, where that is far from the service."""


@final
class WorkerLink(ApiLink):
    """One attempt's line to the service.

    Every call is safe to repeat, and is repeated while nothing answers, until one lease time has
    passed since the service had last renewed the lease when the call began.
    """

    def __init__(self, url: str, attempt_id: str, token: str, *, lease_seconds: float) -> None:
        self._lease_seconds = lease_seconds
        self._renewed_at = time.monotonic()
        self._lock = threading.Lock()
        # A request that hangs is repeated while the lease still holds.
        self._seconds = min(30.0, max(1.0, lease_seconds / 3))
        super().__init__(url, f"/v1/attempts/{attempt_id}", key=token, timeout=self._seconds)

    @property
    def lease_seconds(self) -> float:
        """How long the lease holds after it was renewed, as the service last said."""
        return self._lease_seconds

    def seconds_left(self) -> float:
        """How long the lease still holds, as far as this side knows; negative when it ran out."""
        with self._lock:
            return self._renewed_at + self._lease_seconds - time.monotonic()

    def job(self) -> Job:
        """Fetch what there is to do."""
        return _JOB.validate_json(self._request("GET", "/job").content)

    def heartbeat(self, heartbeat: Heartbeat) -> Verdict:
        """Renew the lease."""
        return self._post("/heartbeat", heartbeat)

    def progress(self, progress: Progress) -> Verdict:
        """Say how far a download is."""
        return self._post("/progress", progress)

    def epoch(self, report: EpochReport, *, waits: bool = True) -> Verdict:  # noqa: ARG002
        """Report an epoch and hear whether to train another one."""
        return self._post("/metrics", report)

    def measurement(self, report: MeasurementReport) -> Verdict:
        """Report one shape's throughput."""
        return self._post("/measurement", report)

    def complete(self, completion: Completion) -> Verdict:
        """Say how the attempt ended; the lease ends with it."""
        return self._post("/complete", completion)

    def get_artifact(self, role: str) -> bytes | None:
        """Fetch the trial's bytes of that role; None when it has none."""
        response = self._request("GET", f"/artifacts/{role}", absent=404)
        return None if response.status_code == 404 else response.content

    def put_artifact(self, role: str, content: bytes) -> Stored:
        """Store bytes under that role, in place of those before."""
        digest = hashlib.sha256(content).hexdigest()
        headers = {"Content-SHA256": digest, "Content-Type": "application/octet-stream"}
        response = self._until_answered(
            f"PUT /artifacts/{role}",
            lambda: self._client.put(
                f"/artifacts/{role}", content=content, headers=headers, timeout=self._long(content)
            ),
            _Patience(self.seconds_left()),
        )
        return Stored.model_validate_json(response.content)

    def get_dataset(self, dataset_id: str, out: BufferedRandom) -> bool:
        """Fetch the data set of the attempt's own job into an empty file; False: there is none.

        A transfer that breaks off goes on where it was: only one that stands still for a lease time
        is given up.

        Raises:
            WorkerRefused: see `_until_answered`.
            SearchError: what arrived is not what the service names.
        """
        path = f"/datasets/{dataset_id}"
        patience = _Patience(self.seconds_left())
        digest = ""

        def receive() -> httpx2.Response:
            nonlocal digest
            headers = {"Accept-Encoding": "identity"}
            if out.tell() > 0:
                headers |= {"Range": f"bytes={out.tell()}-", "If-Range": f'"{digest}"'}
            with self._client.stream("GET", path, headers=headers) as response:
                if not response.is_success:
                    response.read()
                    return response
                digest = response.headers.get("Content-SHA256", "")
                if response.status_code != HTTPStatus.PARTIAL_CONTENT:
                    out.seek(0)
                    out.truncate()
                for chunk in response.iter_raw():
                    out.write(chunk)
                    patience.renew()
            return response

        response = self._until_answered(f"GET {path}", receive, patience, absent=404)
        if response.status_code == HTTPStatus.NOT_FOUND:
            return False
        out.flush()
        out.seek(0)
        arrived = hashlib.file_digest(out, "sha256").hexdigest()
        if arrived != digest:
            raise SearchError(
                f"the data set {dataset_id} arrived with sha256 {arrived}, "
                f"but the service names {digest or 'none'}"
            )
        return True

    def _long(self, content: bytes) -> float:
        """The service passes bytes on, perhaps far away, before it answers."""
        return self._seconds + len(content) / _SLOWEST_BYTES_PER_SECOND

    def _post(self, path: str, body: Spec) -> Verdict:
        sent_at = time.monotonic()
        response = self._request("POST", path, body)
        verdict = Verdict.model_validate_json(response.content)
        with self._lock:
            # From when it was sent: the service counts from some moment after that.
            self._renewed_at = max(self._renewed_at, sent_at)
            self._lease_seconds = verdict.lease_seconds
        return verdict

    def _request(
        self,
        method: str,
        path: str,
        body: Spec | None = None,
        *,
        absent: int | None = None,
    ) -> httpx2.Response:
        """Send a request until it is answered, see `_until_answered`."""
        return self._until_answered(
            f"{method} {path}",
            lambda: self._client.request(method, path, **sent_json(body)),
            _Patience(self.seconds_left()),
            absent=absent,
        )

    def _until_answered(
        self,
        what: str,
        send: Callable[[], httpx2.Response],
        patience: "_Patience",
        *,
        absent: int | None = None,
    ) -> httpx2.Response:
        """Send again and again until an answer is here. A status `absent` is one, not a refusal.

        Raises:
            WorkerRefused: the lease is over, or nothing answered for as long as it held.
            SearchError: the service answered something that this protocol does not know.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                response = send()
            except _FAULTS as error:
                trouble = f"{type(error).__name__}: {error}"
            else:
                if not may_pass(response):
                    return _judged(response, absent)
                trouble = f"status {response.status_code}"
            left = patience.seconds_left()
            if left <= 0:
                raise WorkerRefused(
                    f"{what}: the service was unreachable for the lease time of "
                    f"{self._lease_seconds:g} s ({trouble})"
                )
            _log.warning("%s failed, trying again: %s", what, trouble)
            # A random part keeps many workers from returning all at once.
            time.sleep(min(left, pause * random.uniform(0.5, 1.0)))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


class _Patience:
    """How long a call is repeated while nothing comes of it."""

    def __init__(self, seconds: float) -> None:
        self._seconds = max(0.0, seconds)
        self._until = time.monotonic() + self._seconds

    def renew(self) -> None:
        """Begin to count anew: something came."""
        self._until = time.monotonic() + self._seconds

    def seconds_left(self) -> float:
        """Until the call is given up; negative afterwards."""
        return self._until - time.monotonic()


def _judged(response: httpx2.Response, absent: int | None) -> httpx2.Response:
    status = response.status_code
    if response.is_success or status == absent:
        return response
    what = f"{response.request.method} {response.request.url.path}"
    said = response.text[:500]
    if status in _OVER:
        raise WorkerRefused(f"{what} was answered {status}: the lease is over ({said})")
    raise SearchError(f"{what} was answered {status}: {said}")
