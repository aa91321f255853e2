"""How many members are computed in one call."""

import statistics
from typing import Final, Literal, TypeAlias

WidthPolicy: TypeAlias = int | Literal["auto"]

_TRIED: Final = 8
"""Batches of training by which a width is judged."""
_SKIPPED: Final = 2
"""The first ones of these, in which memory is taken and caches are filled."""


class Widths:
    """The width that took least time per member and batch, as training itself showed.

    All members in one call are tried, then half of them, and each by itself if half was faster than
    all. It is tried anew when there are more than twice as many members, or less than half.
    """

    def __init__(self, policy: WidthPolicy) -> None:
        """A number is obeyed; `auto` measures."""
        self._policy: WidthPolicy = policy
        self._limit: int | None = None
        self._chosen, self._chosen_for = 0, 0
        self._trying: list[int] = []
        self._seconds: dict[int, list[float]] = {}

    def limit(self, width: int | None) -> None:
        """Use no more from now on, since that failed; None: what failed is not there any more."""
        self._limit = width

    def width(self, members: int) -> int:
        """What to use for so many members."""
        if members <= 1:
            return 1
        if self._policy == "auto":
            self._begin_if_changed(members)
            width = self._trying[0] if self._trying else self._chosen
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

    def _begin_if_changed(self, members: int) -> None:
        if self._trying or members <= 2 * self._chosen_for <= 4 * members:
            return
        self._chosen_for, self._seconds = members, {}
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
            self._chosen = fastest
