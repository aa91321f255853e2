"""Which attempt has each place of a machine, and what follows it there."""

import threading
from collections import deque
from typing import final

from search.agents.protocol import Offer


@final
class PlaceQueues:
    """A queue for each place, whose first attempt has it. Safe to call from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: dict[str, deque[Offer]] = {}

    def join(self, offer: Offer) -> bool:
        """Put an attempt at the end of its place's queue; whether it has the place at once."""
        with self._lock:
            queue = self._queues.setdefault(offer.place, deque())
            queue.append(offer)
            return len(queue) == 1

    def withdraw(self, attempt_id: str) -> bool:
        """Take an attempt out that waits; False: it has its place, or is not here."""
        with self._lock:
            for queue in self._queues.values():
                for offer in list(queue)[1:]:
                    if offer.attempt == attempt_id:
                        queue.remove(offer)
                        return True
        return False

    def leave(self, attempt_id: str) -> Offer | None:
        """An attempt gives up its place; returns the one that has it from here on, if any."""
        with self._lock:
            for place, queue in self._queues.items():
                if queue[0].attempt == attempt_id:
                    queue.popleft()
                    if queue:
                        return queue[0]
                    del self._queues[place]
                    return None
        return None

    def waiting(self) -> list[str]:
        """The attempts that have no place yet."""
        with self._lock:
            return [offer.attempt for queue in self._queues.values() for offer in list(queue)[1:]]
