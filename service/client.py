"""Reflectory from Python: submit a study, watch it, read its front, download its models.

    from service.client import Client

    with Client("http://127.0.0.1:8080") as client:
        study = client.submit({"task": {"kind": "digits"}})
        for event in client.watch(study.id):
            ...
        best = client.front(study.id).best()

Every call is safe to repeat, so a fault on the way is met by asking again; what still fails raises
one of the errors of `service.client_errors`. Nothing heavy is imported: a script that only asks
starts at once.
"""

import json
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ValidationError

from service.answers import (
    Answer,
    Catalog,
    Dataset,
    Downloaded,
    DryRun,
    Enqueued,
    Event,
    Front,
    HypervolumePoint,
    HypervolumePoints,
    Importance,
    Page,
    Problem,
    Study,
    Trial,
)
from service.backoff import BUSY_STATUSES, TRANSIENT, Backoff, Busy, again, pause_asked
from service.client_errors import ClientError, Damaged, Refused, Unfinished, Unreachable
from service.downloads import Download, ToldProgress
from service.upload_bodies import form_files

__all__ = ["Client", "ClientError", "Damaged", "Refused", "Unfinished", "Unreachable"]

_A = TypeVar("_A", bound=Answer)
_M = TypeVar("_M", bound=BaseModel)
_T = TypeVar("_T")

_PAGE = 100
# An upload is answered when it was read, which may wait for others that are read before it.
_READING_SECONDS = 900.0
_DATASETS = "/v1/datasets"
_MAKING = HTTPStatus.ACCEPTED
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_PROBLEM = "application/problem+json"


class _AllTold(Exception):
    """The study has ended, and the event asked after is its last."""


class Client:
    """Speaks to one server. Threads may share it; close it, or use it in a `with` statement."""

    def __init__(
        self,
        server: str = "http://127.0.0.1:8080",
        *,
        timeout: float = 60.0,
        patience: float = 3.0,
    ) -> None:
        """Connect to `server` when it is first needed.

        Args:
            server: base URL.
            timeout: seconds without a byte after which a connection counts as broken.
            patience: seconds over which a request is tried again after faults on the way.

        Raises:
            Unreachable: `server` is no URL.
        """
        self.server = server.rstrip("/")
        self._patience = patience
        self._timeout = timeout
        try:
            url = httpx2.URL(self.server)
        except httpx2.InvalidURL as error:
            raise Unreachable(f"{server!r} is no URL: {error}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise Unreachable(f"{server!r} is no URL of a server; write http://HOST:PORT")
        # A proxy that the environment names cannot lead to this machine's own loopback.
        self._http = httpx2.Client(
            base_url=self.server, timeout=timeout, trust_env=url.host not in _LOOPBACK
        )

    def __enter__(self) -> Self:
        """Use the client in a `with` statement, which closes it."""
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Close the connections."""
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def submit(
        self, spec: Mapping[str, Any] | BaseModel, *, idempotency_key: str | None = None
    ) -> Study:
        """Store a study, which begins as soon as a slot is free.

        The same key with the same document gives the same study, however often it is sent; one is
        made where none is given, so that repeating after a fault stores nothing twice.
        """
        headers = {"Idempotency-Key": idempotency_key or uuid.uuid4().hex}
        return self._ask(Study, "POST", "/v1/studies", body=_document(spec), headers=headers)

    def dry_run(self, spec: Mapping[str, Any] | BaseModel) -> DryRun:
        """Describe what a study would search, and store nothing."""
        params = {"dry_run": "true"}
        return self._ask(DryRun, "POST", "/v1/studies", body=_document(spec), params=params)

    def studies(self, *, state: str | None = None) -> Iterator[Study]:
        """All studies, newest first, or those in one state."""
        params = {} if state is None else {"state": state}
        return self._pages(
            lambda query: self._ask(Page[Study], "GET", "/v1/studies", params=query), params
        )

    def study(self, study_id: str) -> Study:
        """One study and how far it is."""
        return self._ask(Study, "GET", _path(study_id))

    def cancel(self, study_id: str) -> Study:
        """End a study at once; what is complete stays. Asking twice is harmless."""
        return self._ask(Study, "POST", f"{_path(study_id)}/cancel")

    def change_budget(self, study_id: str, **budget: float | None) -> Study:
        """Give a study another budget; null takes a limit away. A finished study runs on.

        Args:
            study_id: the study.
            budget: any of `trials`, `total_epochs`, `wall_seconds` and `device_hours`.
        """
        return self._ask(Study, "PATCH", _path(study_id), body={"budget": budget})

    def delete(self, study_id: str) -> None:
        """Delete a study that has ended, with all of its trials and files."""
        self._request("DELETE", _path(study_id))

    def pause(self, study_id: str) -> Study:
        """Hold a study until it is resumed. Asking twice is harmless."""
        return self._ask(Study, "POST", f"{_path(study_id)}/pause")

    def resume(self, study_id: str) -> Study:
        """Let a paused study go on. Asking twice is harmless."""
        return self._ask(Study, "POST", f"{_path(study_id)}/resume")

    def front(self, study_id: str) -> Front:
        """The Pareto front so far."""
        return self._ask(Front, "GET", f"{_path(study_id)}/front")

    def front_csv(self, study_id: str) -> str:
        """The Pareto front so far, as CSV."""
        return self._request("GET", f"{_path(study_id)}/front", params={"format": "csv"}).text

    def importance(self, study_id: str) -> Importance:
        """What each dimension of the space did to each objective, so far."""
        return self._ask(Importance, "GET", f"{_path(study_id)}/importance")

    def hypervolume(self, study_id: str) -> list[HypervolumePoint]:
        """How the hypervolume of the front grew, from change to change."""
        answer = self._request("GET", f"{_path(study_id)}/hypervolume")
        return self._read(HypervolumePoints, answer).root

    def trials(self, study_id: str, *, outcome: str | None = None) -> Iterator[Trial]:
        """All trials in the order of their numbers, or those that ended in one way."""
        path = f"{_path(study_id)}/trials"
        params = {} if outcome is None else {"outcome": outcome}
        return self._pages(lambda query: self._ask(Page[Trial], "GET", path, params=query), params)

    def trials_csv(self, study_id: str) -> str:
        """All trials in the order of their numbers, as CSV."""
        return self._request("GET", f"{_path(study_id)}/trials", params={"format": "csv"}).text

    def trial(self, study_id: str, number: int) -> Trial:
        """One trial."""
        return self._ask(Trial, "GET", _path(study_id, number))

    def enqueue(
        self,
        study_id: str,
        architecture: str,
        parametrization: str,
        hyperparameters: Mapping[str, bool | int | float | str | None] | None = None,
        *,
        patience: float = 30.0,
    ) -> int:
        """Have a configuration of one's own tried before all that wait; returns its number.

        Hyperparameters that are left out are drawn. A finished study runs on for it.

        Raises:
            Unfinished: the server did not make the trial within `patience` seconds; it will.
        """
        named = {
            "architecture": architecture,
            "parametrization": parametrization,
            "hyperparameters": dict(hyperparameters or {}),
        }
        return self._enqueue(study_id, named, patience)

    def continue_trial(self, study_id: str, number: int, *, patience: float = 30.0) -> int:
        """Have a new trial go on from a trial's checkpoint; returns the new one's number.

        Raises:
            Unfinished: the server did not make the trial within `patience` seconds; it will.
        """
        return self._enqueue(study_id, {"continues": number}, patience)

    def _enqueue(self, study_id: str, named: Mapping[str, Any], patience: float) -> int:
        path, headers = f"{_path(study_id)}/trials", {"Idempotency-Key": uuid.uuid4().hex}
        backoff = Backoff(patience)
        while True:
            answer = self._ask(Enqueued, "POST", path, body=named, headers=headers)
            if answer.number is not None:
                return answer.number
            if not backoff.wait():
                raise Unfinished(
                    f"study {study_id} has taken the trial, and no coordinator made it within "
                    f"{patience:g} s; it comes when one runs"
                )

    def report(
        self, study_id: str, number: int, *, form: Literal["json", "html", "csv"] = "json"
    ) -> str:
        """The parameter-count report of a trial, as text in the form asked for."""
        path = f"{_path(study_id, number)}/report"
        return self._request("GET", path, params={"format": form}).text

    def catalog(self) -> Catalog:
        """Everything that a study may name."""
        return self._ask(Catalog, "GET", "/v1/catalog")

    def datasets(self) -> Iterator[Dataset]:
        """All uploaded data sets, newest first."""
        return self._pages(
            lambda query: self._ask(Page[Dataset], "GET", _DATASETS, params=query), {}
        )

    def dataset(self, dataset_id: str) -> Dataset:
        """One uploaded data set: its shapes, classes and first samples."""
        return self._ask(Dataset, "GET", _dataset_path(dataset_id))

    def upload_dataset(
        self,
        path: Path,
        test: Path | None = None,
        *,
        name: str | None = None,
        problem: str | None = None,
        label: str | None = None,
        unequal_lengths: str | None = None,
        missing: str | None = None,
        told: ToldProgress | None = None,
    ) -> Dataset:
        """Upload a data set; the same files with the same options are stored once.

        Args:
            path: a `.npz`, `.csv`, `.tsv` or `.ts` with all of the data, or their training part.
            test: an official test part, of the same format.
            name: by default the file's own.
            problem: `classification`, `regression`, `multilabel` or `forecasting`; by default what
                the targets look like.
            label: csv, tsv: the target's column, by name or by number from 0; by default the first.
            unequal_lengths: `refuse` or `pad` series of different lengths.
            missing: `refuse` missing values, or replace them by their feature's `mean`.
            told: called with the bytes sent so far and in all.

        Raises:
            Refused: the files cannot be read; the problem says where and why.
            OSError: a file is not there.
        """
        paths = {"file": path} | ({} if test is None else {"test": test})
        options = {
            "name": name,
            "problem": problem,
            "label": label,
            "unequal_lengths": unequal_lengths,
            "missing": missing,
        }
        fields = {option: value for option, value in options.items() if value is not None}
        timeout = httpx2.Timeout(self._timeout, read=_READING_SECONDS)

        def send() -> httpx2.Response:
            with form_files(paths, told or _tell_nobody) as files:
                response = self._http.post(_DATASETS, data=fields, files=files, timeout=timeout)
            self._check(response)
            return response

        return self._read(Dataset, self._again(send))

    def delete_dataset(self, dataset_id: str) -> None:
        """Delete an uploaded data set that no study needs any more."""
        self._request("DELETE", _dataset_path(dataset_id))

    def download(
        self, study_id: str, number: int, out: Path, *, told: ToldProgress | None = None
    ) -> Downloaded:
        """Fetch a trial's checkpoint into the file `out`, whole or not at all.

        A transfer that breaks goes on where it broke. `told` is called with the bytes so far and
        in all.

        Raises:
            Damaged: the bytes that arrived do not have the digest that the server names.
        """
        return self._download(f"{_path(study_id, number)}/checkpoint", out, told)

    def onnx(
        self,
        study_id: str,
        number: int,
        out: Path,
        *,
        told: ToldProgress | None = None,
        patience: float = 300.0,
    ) -> Downloaded:
        """Fetch a trial's model as an ONNX file, as `download` fetches its checkpoint.

        The server makes the file when it is first asked for.

        Raises:
            Damaged: the bytes that arrived do not have the digest that the server names.
            Unfinished: it was not made within `patience` seconds.
        """
        path = f"{_path(study_id, number)}/onnx"
        backoff = Backoff(patience)
        # One byte is enough to learn whether it is there, or why it never will be.
        first_byte = {"Range": "bytes=0-0"}
        while (answer := self._request("GET", path, headers=first_byte)).status_code == _MAKING:
            if not backoff.wait(at_least=pause_asked(Busy(answer))):
                raise Unfinished(
                    f"the ONNX file of trial {number} of study {study_id} was not made within "
                    f"{patience:g} s; it is there later"
                )
        return self._download(path, out, told)

    def _download(self, path: str, out: Path, told: ToldProgress | None) -> Downloaded:
        with Download(out, told or _tell_nobody) as download:

            def transfer() -> None:
                if not download.is_complete:
                    with self._stream(path, headers=download.headers()) as response:
                        download.take(response)

            self._again(transfer)
            return download.keep()

    def watch(self, study_id: str, *, after: int = 0, patience: float = 120.0) -> Iterator[Event]:
        """The study's events after a number, each once and in order, until the study has ended.

        A stream that breaks is taken up again after the last event that arrived.

        Raises:
            Unreachable: the server stayed away for more than `patience` seconds.
        """
        place = after
        backoff = Backoff(patience)
        while True:
            before = place
            fault = None
            try:
                for event in self._listen(study_id, after=place):
                    place = event.number
                    backoff.succeeded()
                    yield event
            except _AllTold:
                return
            except TRANSIENT as error:
                fault = error
            # A stream also ends, without a fault, when its server stops.
            stuck = fault is not None or place == before
            if stuck and not backoff.wait(at_least=pause_asked(fault)):
                raise self._unreachable(fault) from fault

    def _listen(self, study_id: str, *, after: int) -> Iterator[Event]:
        headers = {"Last-Event-ID": str(after)}
        with self._stream(f"{_path(study_id)}/events", headers=headers) as response:
            if response.status_code == HTTPStatus.NO_CONTENT:
                raise _AllTold
            for event in httpx2.EventSource(response):
                if event.data and event.id.isdecimal():
                    payload = json.loads(event.data)
                    yield Event(number=int(event.id), kind=event.event, payload=payload)

    @contextmanager
    def _stream(self, path: str, *, headers: Mapping[str, str]) -> Generator[httpx2.Response]:
        with self._http.stream("GET", path, headers=headers) as response:
            if not response.is_success:
                response.read()
                self._check(response)
            yield response

    def _pages(
        self, ask: Callable[[Mapping[str, str]], Page[_A]], params: Mapping[str, str]
    ) -> Iterator[_A]:
        query = {**params, "limit": str(_PAGE)}
        while True:
            page = ask(query)
            yield from page.items
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor

    def _ask(
        self,
        kind: type[_A],
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _A:
        return self._read(
            kind, self._request(method, path, body=body, params=params, headers=headers)
        )

    def _read(self, kind: type[_M], response: httpx2.Response) -> _M:
        try:
            return kind.model_validate_json(response.content)
        except ValidationError as error:
            raise Unreachable(
                f"what answers at {self.server} is no Reflectory server that this client knows: "
                f"{response.request.method} {response.request.url.path} brought no "
                f"{kind.__name__.lower()}"
            ) from error

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx2.Response:
        def send() -> httpx2.Response:
            response = self._http.request(method, path, json=body, params=params, headers=headers)
            self._check(response)
            return response

        return self._again(send)

    def _again(self, work: Callable[[], _T]) -> _T:
        try:
            return again(work, Backoff(self._patience))
        except TRANSIENT as fault:
            raise self._unreachable(fault) from fault

    def _check(self, response: httpx2.Response) -> None:
        if response.is_success:
            return
        if response.status_code in BUSY_STATUSES:
            raise Busy(response)
        raise Refused(_problem(response))

    def _unreachable(self, fault: Exception | None) -> ClientError:
        """The error for a fault that stayed: a refusal where the server gave its reason."""
        if isinstance(fault, Busy) and _is_problem(fault.response):
            return Refused(_problem(fault.response))
        if isinstance(fault, Unreachable):
            return fault
        what = fault or "its event stream stays empty"
        return Unreachable(f"no Reflectory server answers at {self.server}: {what}")


def _path(study_id: str, number: int | None = None) -> str:
    # Ids are opaque: whatever one holds, it stays one step of the path.
    study = f"/v1/studies/{quote(study_id, safe='')}"
    return study if number is None else f"{study}/trials/{number}"


def _dataset_path(dataset_id: str) -> str:
    return f"{_DATASETS}/{quote(dataset_id, safe='')}"


def _document(spec: Mapping[str, Any] | BaseModel) -> Any:
    return spec.model_dump(mode="json") if isinstance(spec, BaseModel) else dict(spec)


def _is_problem(response: httpx2.Response) -> bool:
    return response.headers.get("Content-Type", "").partition(";")[0] == _PROBLEM


def _problem(response: httpx2.Response) -> Problem:
    if _is_problem(response):
        return Problem.model_validate_json(response.content)
    return Problem(
        title=response.reason_phrase,
        status=response.status_code,
        detail=f"{response.request.method} {response.request.url} was answered "
        f"HTTP {response.status_code} {response.reason_phrase}",
    )


def _tell_nobody(_received: int, _total: int | None) -> None:
    return None
