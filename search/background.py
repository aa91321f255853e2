"""Work in a thread of its own, for as long as a `with` block lasts."""

from abc import ABC, abstractmethod
from threading import Event, Thread
from typing import Self


class Background(ABC):
    """Works in a thread while it is entered; leaving it sets `_closing` and waits for the end."""

    def __init__(self, name: str) -> None:
        self._closing = Event()
        self._thread = Thread(target=self._work, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join()

    @abstractmethod
    def _work(self) -> None:
        """Do what there is to do until `_closing` is set."""
