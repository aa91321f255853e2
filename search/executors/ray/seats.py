"""Which slots Ray has granted us, and which it was asked for; see Note [Seats]."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, final

from search.executors.base import Slot
from search.executors.ray.driver import Group
from search.executors.ray.pipe import Held, NotHeld, Report


@dataclass
class _Seat:
    slot: Slot
    group: Group
    granted: bool = False


@final
class Seats:
    """The seats of one driver.

    Args:
        tell: where grants and refusals go.
        then: acts on a future, see `Bridge`.
    """

    def __init__(
        self,
        tell: Callable[[Report], None],
        then: Callable[["Future[Any]", Callable[[Any], None], Callable[[str], None]], None],
    ) -> None:
        self._tell = tell
        self._then = then
        self._seats: dict[str, _Seat] = {}

    def hold(
        self, node_id: str, slot: Slot, bundle: Mapping[str, float], beside: Sequence[Slot]
    ) -> None:
        """Ask for what a slot stands for; `beside` are all slots of its node."""
        if slot.name in self._seats:
            return
        group = Group(node_id, bundle)
        self._seats[slot.name] = _Seat(slot, group)

        def refused(reason: str) -> None:
            seat = self._seat_of(group)
            if seat is not None:
                self._drop(seat, reason)

        def granted(_answer: object) -> None:
            seat = self._seat_of(group)
            if seat is None:
                return
            if "GPU" in bundle:
                self._then(group.gpu(), partly, refused)
            else:
                self._grant(seat)

        def partly(uuid: str) -> None:
            seat = self._seat_of(group)
            if seat is not None:
                self._place(seat, f"cuda:{uuid}", beside)

        self._then(group.granted(), granted, refused)

    def release(self, name: str) -> None:
        """Give a slot back, granted or not."""
        seat = self._seats.pop(name, None)
        if seat is not None:
            seat.group.remove()

    def refuse(self, name: str, reason: str) -> None:
        """Tell that a slot cannot be had."""
        self._tell(NotHeld(slot=name, reason=reason))

    def lose(self, machine: str, reason: str) -> None:
        """Give up all that was held on a machine."""
        for seat in list(self._seats.values()):
            if seat.slot.machine == machine:
                self._drop(seat, reason)

    def _seat_of(self, group: Group) -> _Seat | None:
        """The seat that a group stands for; it may have been given back before Ray's answer."""
        return next((seat for seat in self._seats.values() if seat.group is group), None)

    def _grant(self, seat: _Seat, *, asked: bool = True) -> None:
        seat.granted = True
        self._tell(Held(slot=seat.slot.name, asked=asked))

    def _drop(self, seat: _Seat, reason: str) -> None:
        self.release(seat.slot.name)
        self.refuse(seat.slot.name, reason)

    def _place(self, seat: _Seat, device: str, beside: Sequence[Slot]) -> None:
        """Take a part of a GPU for a slot of that GPU: Ray chooses among those of a node."""
        if seat.slot.device == device:
            self._grant(seat)
            return
        others = [slot for slot in beside if slot.device == device and not self._has(slot)]
        if not others:
            self._drop(seat, f"Ray gave part of {device}, of which no slot is left")
            return
        other = others[0]
        asked = self._seats.get(other.name)
        if asked is None:
            del self._seats[seat.slot.name]
            self.refuse(seat.slot.name, f"Ray gave part of {device} instead")
            self._seats[other.name] = _Seat(other, seat.group)
            self._grant(self._seats[other.name], asked=False)
        else:
            asked.group, seat.group = seat.group, asked.group
            self._grant(asked)

    def _has(self, slot: Slot) -> bool:
        seat = self._seats.get(slot.name)
        return seat is not None and seat.granted
