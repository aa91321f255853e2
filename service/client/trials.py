"""Trials from the client: what was tried, trials of one's own, and their files."""

import codecs
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack
from urllib.parse import urlencode

import httpx2

from service.api.paths import trial_path, trials_path
from service.api.trials.schemas import (
    EnqueuedDocument,
    EpochDocument,
    MeasureDocument,
    MeasurementDocument,
    TrialDetail,
    TrialDocument,
    TrialPage,
)
from service.client.downloaded import Downloaded, DownloadedBundle
from service.client.downloads import ToldProgress, whole_zip
from service.client.errors import Refused, Unfinished
from service.client.files import FileCalls, missing_in
from service.client.transport.backoff import BUSY_STATUSES, Busy, NotYet
from service.client.transport.steps import (
    Close,
    Item,
    Sleep,
    Steps,
    Stream,
    call,
    stream,
)

_MAKING = HTTPStatus.ACCEPTED


class Waiting(TypedDict, total=False):
    """How a file is waited for."""

    told: ToldProgress | None
    """Called with the bytes so far and in all."""
    patience: float
    """Seconds that the server may take to make the file; 300 by default."""


class TrialCalls(FileCalls):
    """The calls that show trials, name new ones and bring their files."""

    @stream
    def trials(self, study_id: str, *, outcome: str | None = None) -> Stream[TrialDocument]:
        """All trials in the order of their numbers, or those that ended in one way."""
        yield from self.pages(TrialPage, trials_path(study_id), {"outcome": outcome})

    @call
    def trials_csv(self, study_id: str) -> Steps[str]:
        """All trials in the order of their numbers, as CSV."""
        return (yield from self._text(trials_path(study_id), format="csv"))

    @call
    def trial(self, study_id: str, number: int) -> Steps[TrialDetail]:
        """One trial, with its whole specification and its throughput record."""
        return (yield from self.ask(TrialDetail, "GET", trial_path(study_id, number)))

    @call
    def metrics(self, study_id: str, number: int) -> Steps[list[EpochDocument]]:
        """A trial's learning curve, by epoch."""
        return (
            yield from self.ask(
                list[EpochDocument], "GET", f"{trial_path(study_id, number)}/metrics"
            )
        )

    @call
    def enqueue(
        self,
        study_id: str,
        architecture: str,
        parametrization: str,
        hyperparameters: Mapping[str, bool | int | float | str | None] | None = None,
        *,
        patience: float = 30.0,
    ) -> Steps[int]:
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
        return (yield from self._enqueue(study_id, named, patience))

    @call
    def continue_trial(self, study_id: str, number: int, *, patience: float = 30.0) -> Steps[int]:
        """Have a new trial go on from a trial's checkpoint; returns the new one's number.

        Raises:
            Unfinished: the server did not make the trial within `patience` seconds; it will.
        """
        return (yield from self._enqueue(study_id, {"continues": number}, patience))

    def _enqueue(self, study_id: str, named: Mapping[str, Any], patience: float) -> Steps[int]:
        path, headers = trials_path(study_id), {"Idempotency-Key": uuid.uuid4().hex}

        def number() -> Steps[int]:
            answer = yield from self.ask(
                EnqueuedDocument, "POST", path, body=named, headers=headers
            )
            if answer.number is None:
                raise NotYet
            return answer.number

        unfinished = (
            f"study {study_id} has taken the trial, and no coordinator made it within "
            f"{patience:g} s; it comes when one runs"
        )
        return (yield from self._until_made(number, unfinished, patience=patience))

    @call
    def measure(
        self, study_id: str, number: int, *, patience: float = 300.0
    ) -> Steps[MeasurementDocument]:
        """Have a trial's throughput measured again, alone; returns the new record.

        The search and the front go on by the record that they used.

        Raises:
            Unfinished: it was not measured within `patience` seconds, and will be when the
                device's turn comes; or it failed, for the reason given.
        """
        path = trial_path(study_id, number)
        trial = yield from TrialCalls.trial.steps(self, study_id, number)
        known = {record.id for record in trial.measurements}
        yield from self.ask(MeasureDocument, "POST", f"{path}/measure", repeatable=False)

        def measured() -> Steps[MeasurementDocument]:
            trial = yield from TrialCalls.trial.steps(self, study_id, number)
            for record in trial.measurements:
                if record.id not in known:
                    return record
            if trial.measuring is not None and trial.measuring.state == "failed":
                raise Unfinished(
                    f"trial {number} of study {study_id} was not measured: "
                    f"{trial.measuring.reason or 'no reason is known'}"
                )
            raise NotYet

        unfinished = (
            f"trial {number} of study {study_id} was not measured within {patience:g} s; "
            "it is when its device's turn comes"
        )
        return (yield from self._until_made(measured, unfinished, patience=patience))

    @call
    def report(
        self, study_id: str, number: int, *, form: Literal["json", "html", "csv"] = "json"
    ) -> Steps[str]:
        """The report of a trial, as text in the form asked for: its parameters are counted.

        Of a network of others, each layer is reported instead, see `network_report`.
        """
        return (yield from self._text(f"{trial_path(study_id, number)}/report", format=form))

    @call
    def log(self, study_id: str, number: int) -> Steps[str]:
        """What the trial's last attempt has written so far."""
        answer = yield from self._request("GET", f"{trial_path(study_id, number)}/log")
        return answer.content.decode("utf-8", "replace")

    @stream
    def follow_log(self, study_id: str, number: int, *, every_seconds: float = 1.0) -> Stream[str]:
        """The log as it grows, until the trial has ended; each attempt's from its beginning."""
        attempt, place, text = None, 0, _LogText()
        while True:
            trial = yield from TrialCalls.trial.steps(self, study_id, number)
            try:
                piece = yield from self._log(study_id, number, place)
            except Refused as error:
                # A trial that waits, or has just begun, has no log yet.
                if trial.ended or error.problem.status != HTTPStatus.NOT_FOUND:
                    raise
                piece = None
            began = piece is not None and place > 0 and piece.attempt != attempt
            if piece is not None and not began:
                if words := text.of(piece, place):
                    yield Item(words)
                attempt, place = piece.attempt, piece.start + len(piece.content)
            if (began or trial.ended) and (words := text.end()):
                yield Item(words)
            if began:
                # Another attempt's log is asked for from its own beginning.
                place, text = 0, _LogText()
                continue
            if trial.ended:
                return
            yield Sleep(every_seconds)

    def _log(self, study_id: str, number: int, start: int) -> Steps["_LogPiece | None"]:
        """What was written since; null where that is nothing."""
        # A range ends where the file ended when it was asked for, however fast it grows.
        path, headers = f"{trial_path(study_id, number)}/log", {"Range": f"bytes={start}-"}
        try:
            answer = yield from self._request("GET", path, headers=headers)
        except Refused as error:
            if error.problem.status == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                return None
            raise
        found = answer.headers
        partial = answer.status_code == HTTPStatus.PARTIAL_CONTENT
        first = int(found.get("Log-Start", start if partial else 0))
        # Where the range was not heeded, all of it comes again.
        content = answer.content[max(0, start - first) :]
        return _LogPiece(content, max(start, first), found.get("Log-Attempt"))

    @call
    def download(
        self, study_id: str, number: int, out: Path | str, *, told: ToldProgress | None = None
    ) -> Steps[Downloaded]:
        """Fetch a trial's checkpoint into the file `out`, whole or not at all.

        A transfer that breaks goes on where it broke. `told` is called with the bytes so far and
        in all.

        Raises:
            Damaged: the bytes that arrived do not have the digest that the server names.
        """
        return (yield from self._download(f"{trial_path(study_id, number)}/checkpoint", out, told))

    @call
    def onnx(
        self,
        study_id: str,
        number: int,
        out: Path | str,
        *,
        raw: bool = False,
        guard: bool = False,
        form: Literal["auto", "node", "loop"] | None = None,
        quantization: Literal["none", "qdq"] = "none",
        **options: Unpack[Waiting],
    ) -> Steps[Downloaded]:
        """Fetch a trial's model as an ONNX file, see `file`.

        Args:
            study_id: the study.
            number: the trial.
            out: the file to write.
            raw: the network alone, without scaling, layouts, lengths and labels.
            guard: batches may be empty.
            form: whole matrices or products through factors; None: as the study says.
            quantization: of a model of 8 or 4 bits: qdq has `DequantizeLinear` nodes.
            options: how it is waited for.
        """
        wanted = {
            "raw": "true" if raw else None,
            "guard": "true" if guard else None,
            "form": form,
            "quantization": None if quantization == "none" else quantization,
        }
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        return (yield from self._file(study_id, number, "onnx", out, query=query, **options))

    @call
    def onnx_stream(
        self, study_id: str, number: int, out: Path | str, **options: Unpack[Waiting]
    ) -> Steps[Downloaded]:
        """Fetch a trial's model as an ONNX file that reads a sequence in pieces, see `file`."""
        return (yield from self._file(study_id, number, "onnx_stream", out, **options))

    @call
    def c_files(
        self,
        study_id: str,
        number: int,
        out: Path | str,
        *,
        name: str = "model",
        **options: Unpack[Waiting],
    ) -> Steps[Downloaded]:
        """Fetch a trial's model as a ZIP file of `NAME.h` and `NAME.c`, see `file`."""
        query = urlencode({"name": name})
        return (yield from self._file(study_id, number, "c", out, query=query, **options))

    @call
    def dense(
        self, study_id: str, number: int, out: Path | str, **options: Unpack[Waiting]
    ) -> Steps[Downloaded]:
        """Fetch a trial's model as a state dict of plain torch.nn layers, see `file`."""
        return (yield from self._file(study_id, number, "dense", out, **options))

    @call
    def file(
        self,
        study_id: str,
        number: int,
        kind: Literal["onnx", "onnx_stream", "dense"],
        out: Path | str,
        **options: Unpack[Waiting],
    ) -> Steps[Downloaded]:
        """Fetch one file of a trial, in safetensors where it is dense, as `download` does.

        The server makes the file when it is first asked for.

        Raises:
            Damaged: the bytes that arrived do not have the digest that the server names.
            Refused: no such file can be made of the model, for the reason given.
            Unfinished: it was not made within `patience` seconds.
        """
        return (yield from self._file(study_id, number, kind, out, **options))

    def _file(
        self,
        study_id: str,
        number: int,
        kind: str,
        out: Path | str,
        *,
        query: str = "",
        told: ToldProgress | None = None,
        patience: float = 300.0,
    ) -> Steps[Downloaded]:
        path = f"{trial_path(study_id, number)}/{kind}" + (f"?{query}" if query else "")
        what = f"the {kind} file of trial {number} of study {study_id}"
        yield from self._wait_for(path, what, patience)
        return (yield from self._download(path, out, told))

    @call
    def folder(
        self,
        study_id: str,
        number: int,
        out: Path | str,
        *,
        told: ToldProgress | None = None,
        patience: float = 600.0,
    ) -> Steps[DownloadedBundle]:
        """Fetch all files of a trial, its card and its examples into the ZIP file `out`.

        The server makes what is not made yet. What cannot be had is named in the answer's
        `missing`, with reasons.

        Raises:
            Damaged: what arrived is no whole ZIP file, or a file in it is damaged.
            Unfinished: not all was made within `patience` seconds.
        """
        path = f"{trial_path(study_id, number)}/folder"
        yield from self._wait_for(
            path, f"the folder of trial {number} of study {study_id}", patience
        )
        got = yield from self._download(path, out, told, proof=whole_zip)
        return DownloadedBundle(**vars(got), missing=missing_in(got.path))

    @call
    def card(self, study_id: str, number: int) -> Steps[str]:
        """What a trial's model is, for people: the text of its `MODEL_CARD.md`."""
        return (yield from self._text(f"{trial_path(study_id, number)}/card"))

    def _wait_for(self, path: str, what: str, patience: float) -> Steps[None]:
        """Ask for a file until it was made."""

        def ask() -> Steps[httpx2.Response]:
            try:
                # One byte is enough to learn whether it is there, or why it never will be.
                answer = yield from self._stream(path, headers={"Range": "bytes=0-0"})
            except Busy as busy:
                # A server that is busy is waited for as long as the file.
                return busy.response
            yield Close(answer)
            return answer.response

        def look() -> Steps[None]:
            response = yield from self._again(ask)
            if response.status_code == _MAKING or response.status_code in BUSY_STATUSES:
                raise Busy(response)

        unfinished = f"{what} was not made within {patience:g} s; it is there later"
        yield from self._until_made(look, unfinished, patience=patience)


@dataclass(frozen=True)
class _LogPiece:
    """A part of the log of an attempt."""

    content: bytes
    start: int
    """How many bytes were written before these."""
    attempt: str | None


class _LogText:
    """The pieces of a log as people read them: lines of JSON in words."""

    def __init__(self) -> None:
        # A piece may end within a letter.
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._within_line = False

    def of(self, piece: _LogPiece, place: int) -> str:
        """A piece in words, where what came before it ended at `place`."""
        gap = ""
        if piece.start > place:
            gap = self.end() + ("\n" if self._within_line else "")
            gap += f"[{piece.start - place} bytes were not kept]\n"
        return gap + self._words(self._held + self._decoder.decode(piece.content))

    def end(self) -> str:
        """What was held back, where nothing follows it."""
        return self._words(self._held + self._decoder.decode(b"", final=True), is_last=True)

    def _words(self, text: str, *, is_last: bool = False) -> str:
        # Most programs follow no log, and start without what reads its lines.
        from search.logs import readable

        lines = text.splitlines(keepends=True)
        self._held = ""
        # A line of JSON can be put into words once it is whole; others are shown as they come.
        if lines and lines[-1].startswith("{") and not lines[-1].endswith("\n") and not is_last:
            self._held = lines.pop()
        words = "".join(map(readable, lines))
        if words:
            self._within_line = not words.endswith("\n")
        return words
