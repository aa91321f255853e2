"""How an attempt at work speaks to the service, whichever way its words go."""

from io import BufferedRandom
from typing import Protocol

from search.training.jobs import EpochReport, MeasurementReport, Progress, Verdict


class AttemptLine(Protocol):
    """One attempt's line. All calls raise `WorkerRefused` when the attempt's lease is over."""

    def progress(self, progress: Progress, /) -> object:
        """Say how far a download is."""
        ...

    def say_epoch(self, report: EpochReport, /, *, waits: bool) -> object:
        """Report an epoch.

        Those that are trained together all say theirs before the first of them hears: what they
        wait for is then one answer, and not one for each.
        """
        ...

    def hear_verdict(self) -> Verdict:
        """Hear whether to train another epoch after the one that was reported last.

        Where that was reported without `waits`, what is heard is what was said of an epoch before.
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
    def leaves(self) -> bool:
        """Whether it is to store its state and end, for another attempt to go on from there."""
        ...

    @property
    def held_seconds(self) -> float:
        """How long the attempt has had its slot, by a clock that nobody sets.

        What several attempts have together is divided between them: each moment by those that are
        there, see Note [Stacks] in `search/README.md`. So what all have had is the slot's time.
        """
        ...

    @property
    def stood_still_seconds(self) -> float:
        """How long the slot stood still for measurers meanwhile, divided likewise."""
        ...

    def check(self) -> None:
        """Go on only while the lease holds.

        Raises:
            WorkerRefused: it does not.
        """
        ...
