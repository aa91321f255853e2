"""How many members are computed in one call."""

import math
import statistics
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, final

from models.spec import kind_of
from search.training.jobs import TrainJob

WidthPolicy: TypeAlias = int | Literal["auto"]

_TRIED: Final = 8
"""Batches of training by which a width is judged."""
_SKIPPED: Final = 2
"""The first ones of these, in which memory is taken and caches are filled."""


@dataclass
class _Known:
    """What was fastest for trials of about one size."""

    members: int = 0
    """Of so many that were there; 0: nothing is known."""
    width: int | None = None
    """Members per call; null: as many as there were."""


@final
class KnownWidths:
    """What was fastest in this process, so that the next trials of about the same size try nothing.

    Alike are architecture and parametrization by kind, the size within a factor of 2, the batch
    size, the length of samples and the device.
    """

    def __init__(self) -> None:
        self._of: dict[object, _Known] = {}

    def of(self, job: TrainJob, *, device: str) -> _Known:
        """What is known for trials like this one; what is found out is written there."""
        model = job.trial.model
        size = round(math.log2(max(1, model.dense_twin().parameter_count())))
        kinds = kind_of(type(model.architecture)), kind_of(type(model.parametrization))
        kind = *kinds, size, job.trial.training.batch_size, model.signature.sequence_length, device
        return self._of.setdefault(kind, _Known())


@final
class Widths:
    """The width that took least time per member and batch, as training itself showed.

    All members in one call are tried, then half of them, and each by itself if half was faster than
    all. It is tried anew when there are more than twice as many members.
    """

    def __init__(self, policy: WidthPolicy) -> None:
        """A number is obeyed; `auto` measures."""
        self._policy: WidthPolicy = policy
        self._known = _Known()
        self._limit: int | None = None
        self._trying: list[int] = []
        self._trying_for = 0
        self._seconds: dict[int, list[float]] = {}

    def begin_with(self, known: _Known) -> None:
        """Go on from what is known of such trials."""
        self._known = known

    def limit(self, width: int | None) -> None:
        """Use no more from now on, since that failed; None: what failed is not there any more."""
        self._limit = width

    def width(self, members: int) -> int:
        """What to use for so many members."""
        if members <= 1:
            return 1
        if self._policy == "auto":
            self._begin_if_unknown(members)
            width = self._trying[0] if self._trying else self._known.width or members
        else:
            width = self._policy
        return max(1, min(width, members, self._limit or members))

    def took(self, seconds: float, *, members: int) -> None:
        """Take note of what a batch of all members took, in the width that was asked for last."""
        if not self._trying or members <= 1:
            return
        width = self._trying[0]
        times = self._seconds.setdefault(width, [])
        times.append(seconds / members)
        if len(times) >= _TRIED:
            self._go_on(width)

    def _begin_if_unknown(self, members: int) -> None:
        if self._trying or members <= 2 * self._known.members:
            return
        self._trying_for, self._seconds = members, {}
        self._trying = [members, *([-(-members // 2)] if members > 2 else [1])]

    def _go_on(self, width: int) -> None:
        medians = {
            tried: statistics.median(times[_SKIPPED:]) for tried, times in self._seconds.items()
        }
        fastest = min(sorted(medians, reverse=True), key=medians.__getitem__)
        del self._trying[0]
        if not self._trying and width == fastest > 1 and len(medians) > 1:
            self._trying = [1]
        if not self._trying:
            self._known.members = self._trying_for
            self._known.width = None if fastest == self._trying_for else fastest
