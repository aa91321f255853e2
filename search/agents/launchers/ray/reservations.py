"""Which slots Ray has granted us, and which it was asked for; see Note [Reservations]."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, final

from search.agents.executor import Slot
from search.agents.launchers.ray.driver import Group
from search.agents.launchers.ray.messages import Held, NotHeld, Report


@dataclass
class _Reservation:
    slot: Slot
    group: Group
    granted: bool = False


@final
class Reservations:
    """The reservations of one driver.

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
        self._reservations: dict[str, _Reservation] = {}

    def hold(
        self, node_id: str, slot: Slot, bundle: Mapping[str, float], beside: Sequence[Slot]
    ) -> None:
        """Ask for what a slot stands for; `beside` are all slots of its node."""
        if slot.name in self._reservations:
            return
        group = Group(node_id, bundle)
        self._reservations[slot.name] = _Reservation(slot, group)

        def refused(reason: str) -> None:
            reservation = self._reservation_of(group)
            if reservation is not None:
                self._drop(reservation, reason)

        def granted(_answer: object) -> None:
            reservation = self._reservation_of(group)
            if reservation is None:
                return
            if "GPU" in bundle:
                self._then(group.gpu(), partly, refused)
            else:
                self._grant(reservation)

        def partly(uuid: str) -> None:
            reservation = self._reservation_of(group)
            if reservation is not None:
                self._place(reservation, f"cuda:{uuid}", beside)

        self._then(group.granted(), granted, refused)

    def release(self, name: str) -> None:
        """Give a slot back, granted or not."""
        reservation = self._reservations.pop(name, None)
        if reservation is not None:
            reservation.group.remove()

    def refuse(self, name: str, reason: str) -> None:
        """Tell that a slot cannot be had."""
        self._tell(NotHeld(slot=name, reason=reason))

    def lose(self, machine: str, reason: str) -> None:
        """Give up all that was held on a machine."""
        for reservation in list(self._reservations.values()):
            if reservation.slot.machine == machine:
                self._drop(reservation, reason)

    def _reservation_of(self, group: Group) -> _Reservation | None:
        """The reservation of a group; it may have been given back before Ray's answer."""
        return next(
            (
                reservation
                for reservation in self._reservations.values()
                if reservation.group is group
            ),
            None,
        )

    def _grant(self, reservation: _Reservation, *, asked: bool = True) -> None:
        reservation.granted = True
        self._tell(Held(slot=reservation.slot.name, asked=asked))

    def _drop(self, reservation: _Reservation, reason: str) -> None:
        self.release(reservation.slot.name)
        self.refuse(reservation.slot.name, reason)

    def _place(self, reservation: _Reservation, device: str, beside: Sequence[Slot]) -> None:
        """Take a part of a GPU for a slot of that GPU: Ray chooses among those of a node."""
        if reservation.slot.device == device:
            self._grant(reservation)
            return
        others = [slot for slot in beside if slot.device == device and not self._has(slot)]
        if not others:
            self._drop(reservation, f"Ray gave part of {device}, of which no slot is left")
            return
        other = others[0]
        asked = self._reservations.get(other.name)
        if asked is None:
            del self._reservations[reservation.slot.name]
            self.refuse(reservation.slot.name, f"Ray gave part of {device} instead")
            self._reservations[other.name] = _Reservation(other, reservation.group)
            self._grant(self._reservations[other.name], asked=False)
        else:
            asked.group, reservation.group = reservation.group, asked.group
            self._grant(asked)

    def _has(self, slot: Slot) -> bool:
        reservation = self._reservations.get(slot.name)
        return reservation is not None and reservation.granted
