"""How an attempt at work speaks to the service, whichever way its words go."""

from io import BufferedRandom
from typing import Protocol

from search.training.jobs import EpochReport, MeasurementReport, Progress, Verdict


class AttemptLine(Protocol):
    """One attempt's line. All calls raise `WorkerRefused` when the attempt's lease is over."""

    def progress(self, progress: Progress, /) -> object:
        """Say how far a download is."""
        ...

    def epoch(self, report: EpochReport, /, *, waits: bool) -> Verdict:
        """Report an epoch and hear whether to train another one.

        Without `waits`, what is heard is what was said of an epoch before.
        """
        ...

    def measurement(self, report: MeasurementReport, /) -> object:
        """Report one shape's throughput."""
        ...

    def get_artifact(self, role: str, /) -> bytes | None:
        """Fetch the trial's bytes of that role; None when it has none."""
        ...

    def put_artifact(self, role: str, content: bytes, /) -> object:
        """Have bytes stored under that role, in place of those before."""
        ...

    def get_dataset(self, dataset_id: str, out: BufferedRandom, /) -> bool:
        """Fetch the data set of the attempt's own job into an empty file; False: there is none."""
        ...


class Hold(Protocol):
    """What an attempt knows of its lease."""

    @property
    def stop(self) -> Verdict | None:
        """The verdict to stop or to pause, once it has come."""
        ...

    @property
    def held_seconds(self) -> float:
        """How long the attempt has had its slot, by a clock that nobody sets."""
        ...

    def check(self) -> None:
        """Go on only while the lease holds.

        Raises:
            WorkerRefused: it does not.
        """
        ...
