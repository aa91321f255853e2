"""One trial, to look at and to download."""

import tempfile
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

from pydantic import ConfigDict, PrivateAttr

from service.api.trials.schemas import TrialDetail
from service.client.downloaded import DownloadedFolder
from service.client.downloads import ToldProgress
from service.client.files import unpack
from service.client.handles.columns import record_of_trial
from service.client.handles.html import table
from service.client.handles.mirrored import MIRRORED, of_trial, stream_of_trial
from service.client.transport.described import Described
from service.client.transport.steps import Awaits, Steps, Stream, Waits, call
from service.client.trials import TrialCalls

_T = TypeVar("_T")


class TrialHandle(TrialDetail):
    """A trial as it was when it was asked for, and the calls that are about it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(ignored_types=MIRRORED, defer_build=True)

    _client: Any = PrivateAttr()
    _study_id: str = PrivateAttr()

    @classmethod
    def of(cls, client: Described, study_id: str, trial: TrialDetail) -> Self:
        """The handle of a trial."""
        made = cls.model_construct(**dict(trial))
        made._client, made._study_id = client, study_id
        return made

    def __repr__(self) -> str:
        """Which trial it is, in a line."""
        quality = self.values.quality
        shown = "" if quality is None else f", quality {quality:.4g}"
        return (
            f"{type(self).__name__}({self.number}, {self.architecture} {self.parametrization}, "
            f"{self.outcome}{shown})"
        )

    def __str__(self) -> str:
        """The same as `repr`."""
        return repr(self)

    def _repr_html_(self) -> str:
        record = record_of_trial(self)
        caption = f"Trial {self.number} of study {self._study_id}"
        return table(("what", "value"), record.items(), caption=caption)

    @property
    def client(self) -> Any:
        """The client that it was asked with."""
        return self._client

    @property
    def study_id(self) -> str:
        """Whose trial it is."""
        return self._study_id

    @property
    def place(self) -> tuple[str, int]:
        """The arguments that name it in a client's calls."""
        return self._study_id, self.number

    def taken(self, answer: _T) -> _T:
        """What a call's answer is given on as: as it is."""
        return answer

    metrics = of_trial(TrialCalls.metrics)
    report = of_trial(TrialCalls.report)
    log = of_trial(TrialCalls.log)
    follow_log = stream_of_trial(TrialCalls.follow_log)
    card = of_trial(TrialCalls.card)
    measure = of_trial(TrialCalls.measure)
    continue_trial = of_trial(TrialCalls.continue_trial)
    checkpoint = of_trial(TrialCalls.download)
    onnx = of_trial(TrialCalls.onnx)
    onnx_stream = of_trial(TrialCalls.onnx_stream)
    c_files = of_trial(TrialCalls.c_files)
    dense = of_trial(TrialCalls.dense)
    folder = of_trial(TrialCalls.folder)

    @call
    def download(
        self, out: Path | str = ".", *, told: ToldProgress | None = None
    ) -> Steps[DownloadedFolder]:
        """Write all files of the trial into a folder: checkpoint, ONNX, C, card and examples.

        The folder is made where it is missing. What cannot be had is named in the answer's
        `missing`, with reasons.

        Raises:
            Damaged: what arrived is no whole ZIP file, or a file in it is damaged.
            Unfinished: not all was made in time.
        """
        return (yield from folder_of(self._client, self._study_id, self.number, Path(out), told))


class Trial(TrialHandle, Waits):
    """A trial of a study of `Client`."""

    def perform(self, steps: Steps[_T]) -> _T:
        """The answer of a call, when it is there."""
        return self._client.perform(steps)

    def give(self, stream: Stream[_T]) -> Any:
        """What a call gives, one after the other."""
        return self._client.give(stream)


class AsyncTrial(TrialHandle, Awaits):
    """A trial of a study of `AsyncClient`."""

    def perform(self, steps: Steps[_T]) -> Any:
        """The answer of a call, to be awaited."""
        return self._client.perform(steps)

    def give(self, stream: Stream[_T]) -> Any:
        """What a call gives, for `async for`."""
        return self._client.give(stream)


def folder_of(
    client: Described, study_id: str, number: int, out: Path, told: ToldProgress | None
) -> Steps[DownloadedFolder]:
    """Write all files of a trial into the folder `out`."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=f".trial-{number}.") as unfinished:
        file = Path(unfinished) / f"trial-{number}.zip"
        got = yield from TrialCalls.folder.steps(client, study_id, number, file, told=told)
        files = tuple(unpack(file, f"trial-{number}", out))
    return DownloadedFolder(out, files, got.missing)
