"""Calls of a worker machine, as in `search.agents.machine_protocol`: each is tried once."""

from typing import TypeVar, final

import httpx2
from pydantic import BaseModel, ValidationError

from models.spec import Spec
from search.agents.api_client import ApiLink, may_pass, sent_json
from search.agents.machine_protocol import Exits, Join, Joined, Orders, Poll
from search.errors import MachineRefused, SearchError

_Answer = TypeVar("_Answer", bound=BaseModel)

_WORKERS = "/workers"


class NoAnswer(SearchError):
    """The service did not answer, or said that it cannot just now: ask again later."""


@final
class MachineLink(ApiLink):
    """The line of a machine to the service."""

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
        return self._read(Joined, self._send("POST", _WORKERS, body))

    def poll(self, body: Poll) -> Orders:
        """Say what runs and hear what should; raises as `join`."""
        return self._read(
            Orders,
            self._send("POST", f"{_WORKERS}/{self._machine}/poll", body, waiting=body.wait_seconds),
        )

    def exits(self, body: Exits) -> None:
        """Say how attempts ended; raises as `join`."""
        self._send("POST", f"{_WORKERS}/{self._machine}/exits", body)

    def leave(self, session: str) -> None:
        """Say that this machine takes nothing more; raises as `join`."""
        self._send("DELETE", f"{_WORKERS}/{self._machine}?session={session}", None)

    def _send(
        self, method: str, path: str, body: Spec | None, *, waiting: float = 0.0
    ) -> httpx2.Response:
        try:
            response = self._client.request(
                method, path, timeout=self.timeout + waiting, **sent_json(body)
            )
        except httpx2.TransportError as error:
            raise NoAnswer(f"{type(error).__name__}: {error}") from error
        if response.is_success:
            return response
        said = _detail(response)
        if may_pass(response):
            raise NoAnswer(f"status {response.status_code}: {said}")
        raise MachineRefused(said)

    def _read(self, kind: type[_Answer], response: httpx2.Response) -> _Answer:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            raise MachineRefused(
                f"what answers at {self._client.base_url} is no Reflectory server of this version"
            ) from error


class _Problem(BaseModel):
    detail: str


def _detail(response: httpx2.Response) -> str:
    try:
        return _Problem.model_validate_json(response.content).detail
    except ValidationError:
        return f"it was answered {response.status_code}: {response.text[:200]}"
