"""A task's data, kept in memory from one attempt of a process to the next."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
from torch import Tensor

from models.interface import Interface
from search.tasks import AnyTask, DataSources, RawSamples, Splits


@dataclass(frozen=True)
class TaskData:
    """All that training needs of a task's data."""

    splits: Splits
    interface: Interface
    """What files of the model are made with follows from the data, which may be gone later."""
    samples: RawSamples


@final
class WarmData:
    """The data of the task that was trained last, unless they are too large to be kept."""

    def __init__(self, most_bytes: int) -> None:
        """`most_bytes` is how large what is kept may be; 0 keeps nothing."""
        self._most_bytes = most_bytes
        self._kept: tuple[str, TaskData] | None = None

    def of(self, task: AnyTask, sources: DataSources) -> TaskData:
        """A task's data, read anew unless they are here.

        Raises:
            DataError: see `Task.load`.
        """
        name = task.model_dump_json()
        if self._kept is not None and self._kept[0] == name:
            return self._kept[1]
        self._kept = None
        data = TaskData(task.load(sources), task.interface(sources), task.raw_samples(sources))
        if size_of(data) <= self._most_bytes:
            self._kept = (name, data)
        return data


def size_of(data: TaskData) -> int:
    """The bytes of all arrays of a task's data, those counted once that several splits share."""
    found = {key: size for split in vars(data.splits).values() for key, size in _arrays(split, 3)}
    return sum(found.values())


def _arrays(value: object, depth: int) -> Iterator[tuple[int, int]]:
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        yield storage.data_ptr(), storage.nbytes()
    elif isinstance(value, np.ndarray):
        array = cast("np.ndarray[Any, Any]", value)
        yield id(array), array.nbytes
    elif isinstance(value, list | tuple):
        for one in cast("Iterable[object]", value):
            yield from _arrays(one, depth)
    elif depth and hasattr(value, "__dict__"):
        for one in list(vars(value).values()):
            yield from _arrays(one, depth - 1)
