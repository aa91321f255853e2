"""Calls of an agent, as in `search.agents.protocol`: each is tried once."""

import hashlib
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeVar, final

import httpx2
from pydantic import BaseModel, ValidationError

from models.spec import Spec
from search.agents.api_client import ApiLink, may_pass, sent_json
from search.agents.protocol import SYNC_TYPE, Join, Joined, Orders, Poll, Synced
from search.errors import MachineRefused, SearchError

_Answer = TypeVar("_Answer", bound=BaseModel)

_AGENTS: Final = "/agents"
_UNREADABLE: Final = frozenset({400, 413, 415, 422})
_SLOWEST_BYTES_PER_SECOND: Final = 4 << 20
"""How fast bytes are stored at least, where that is far from the service."""


class NoAnswer(SearchError):
    """The service did not answer, or said that it cannot just now: ask again later."""


class NotTaken(SearchError):
    """The service does not take a file of an attempt."""

    def __init__(self, detail: str, *, is_over: bool) -> None:
        super().__init__(detail)
        self.is_over = is_over
        """Whether it is for the attempt's end, and not for the file."""


@final
class AgentLink(ApiLink):
    """The line of an agent to the service."""

    def __init__(self, url: str, machine: str, *, key: str | None, timeout: float = 10.0) -> None:
        super().__init__(url, "/v1", key=key, timeout=timeout)
        self._machine = machine
        self.timeout = timeout
        """How long the service may take, in seconds, beside what it was asked to wait."""

    def join(self, body: Join) -> Joined:
        """Join, or join again.

        Raises:
            MachineRefused: the service does not take this machine, and says why.
            NoAnswer: it does not answer.
        """
        return self._read(Joined, self._send("POST", _AGENTS, body))

    def poll(self, body: Poll) -> Orders:
        """Say what runs and hear what should; raises as `join`."""
        return self._read(
            Orders,
            self._send("POST", f"{_AGENTS}/{self._machine}/poll", body, waiting=body.wait_seconds),
        )

    def sync(self, body: bytes) -> Synced:
        """Say what became of attempts; raises as `join`.

        Raises:
            NotTaken: the service cannot read it.
        """
        path, headers = f"{_AGENTS}/{self._machine}/sync", {"Content-Type": SYNC_TYPE}
        seconds = self.timeout + len(body) / _SLOWEST_BYTES_PER_SECOND
        try:
            response = self._client.post(path, content=body, headers=headers, timeout=seconds)
        except httpx2.TransportError as error:
            raise _no_answer(error) from error
        if response.status_code in _UNREADABLE:
            raise NotTaken(_detail(response), is_over=False)
        return self._read(Synced, _checked(response))

    def leave(self, session: str) -> None:
        """Say that this machine takes nothing more; raises as `join`."""
        self._send("DELETE", f"{_AGENTS}/{self._machine}?session={session}", None)

    def get_artifact(self, attempt_id: str, role: str, *, token: str) -> bytes | None:
        """Fetch the bytes of that role of an attempt's trial; None when it has none.

        Raises:
            NoAnswer: the service does not answer.
            SearchError: it gives nothing out.
        """
        path = f"{self._of(attempt_id)}/artifacts/{role}"
        try:
            response = self._client.get(path, headers=_with(token), timeout=30.0)
        except httpx2.TransportError as error:
            raise _no_answer(error) from error
        return None if _is_absent(response) else response.content

    def put_artifact(self, attempt_id: str, role: str, content: bytes, *, token: str) -> None:
        """Have bytes stored that are too large for a sync.

        Raises:
            NoAnswer: the service does not answer, or has no room just now.
            NotTaken: it does not take them.
        """
        digest = hashlib.sha256(content).hexdigest()
        headers = {
            **_with(token),
            "Content-SHA256": digest,
            "Content-Type": "application/octet-stream",
        }
        seconds = self.timeout + len(content) / _SLOWEST_BYTES_PER_SECOND
        path = f"{self._of(attempt_id)}/artifacts/{role}"
        try:
            response = self._client.put(path, content=content, headers=headers, timeout=seconds)
        except httpx2.TransportError as error:
            raise _no_answer(error) from error
        if response.is_success:
            return
        said = _detail(response)
        if may_pass(response):
            raise NoAnswer(f"status {response.status_code}: {said}")
        raise NotTaken(said, is_over=response.status_code == HTTPStatus.CONFLICT)

    def get_dataset(self, attempt_id: str, dataset_id: str, path: Path, *, token: str) -> bool:
        """Fetch the data set of an attempt's job into a file; False: there is none.

        A transfer that broke off goes on where it was when this is called again.

        Raises:
            NoAnswer: the service does not answer, or broke off.
            SearchError: what arrived is not what the service names.
        """
        with path.open("r+b") as out:
            start = out.seek(0, 2)
            headers = {**_with(token), "Accept-Encoding": "identity"}
            if start:
                headers["Range"] = f"bytes={start}-"
            url = f"{self._of(attempt_id)}/datasets/{dataset_id}"
            try:
                with self._client.stream("GET", url, headers=headers, timeout=30.0) as response:
                    if not response.is_success:
                        response.read()
                        if response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                            out.truncate(0)
                            raise NoAnswer("what was there already was longer")
                        return not _is_absent(response)
                    digest = response.headers.get("Content-SHA256", "")
                    if response.status_code != HTTPStatus.PARTIAL_CONTENT:
                        out.seek(0)
                        out.truncate()
                    for chunk in response.iter_raw():
                        out.write(chunk)
            except httpx2.TransportError as error:
                raise _no_answer(error) from error
            out.seek(0)
            arrived = hashlib.file_digest(out, "sha256").hexdigest()
            if arrived != digest:
                out.truncate(0)
                raise SearchError(
                    f"the data set {dataset_id} arrived with sha256 {arrived}, "
                    f"but the service names {digest or 'none'}"
                )
        return True

    def _of(self, attempt_id: str) -> str:
        return f"{_AGENTS}/{self._machine}/attempts/{attempt_id}"

    def _send(
        self, method: str, path: str, body: Spec | None, *, waiting: float = 0.0
    ) -> httpx2.Response:
        try:
            response = self._client.request(
                method, path, timeout=self.timeout + waiting, **sent_json(body)
            )
        except httpx2.TransportError as error:
            raise _no_answer(error) from error
        return _checked(response)

    def _read(self, kind: type[_Answer], response: httpx2.Response) -> _Answer:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            raise MachineRefused(
                f"what answers at {self._client.base_url} is no Reflectory server of this version"
            ) from error


class _Problem(BaseModel):
    detail: str


def _with(token: str) -> dict[str, str]:
    return {"Lease-Token": token}


def _no_answer(error: httpx2.TransportError) -> NoAnswer:
    return NoAnswer(f"{type(error).__name__}: {error}")


def _checked(response: httpx2.Response) -> httpx2.Response:
    """A successful answer.

    Raises:
        NoAnswer: the service cannot just now.
        MachineRefused: it does not take this.
    """
    if response.is_success:
        return response
    said = _detail(response)
    if may_pass(response):
        raise NoAnswer(f"status {response.status_code}: {said}")
    raise MachineRefused(said)


def _is_absent(response: httpx2.Response) -> bool:
    """Whether there is no such file; raises when none is given out for another reason."""
    if response.status_code == HTTPStatus.NOT_FOUND:
        return True
    if response.is_success:
        return False
    said = _detail(response)
    if may_pass(response):
        raise NoAnswer(f"status {response.status_code}: {said}")
    raise SearchError(f"it was answered {response.status_code}: {said}")


def _detail(response: httpx2.Response) -> str:
    try:
        return _Problem.model_validate_json(response.content).detail
    except ValidationError:
        return f"it was answered {response.status_code}: {response.text[:200]}"
