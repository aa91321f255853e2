"""What the other API processes of a machine have counted, for whichever of them is asked.

Each writes its samples into a file of a folder that they share, now and then and at its end. Sums
go on counting those of processes that have ended; what only holds for the moment, such as open
streams, counts for as long as its process writes.
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias, final

from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

WRITE_EVERY_SECONDS: Final = 1.0
_SILENT_SECONDS: Final = 10.0
"""A process that has written nothing for so long is not there any more."""

_SUFFIXES: Final = {
    "counter": ("_total", "_created"),
    "gauge": ("",),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
}
"""What the samples of a family are called, after its name."""

_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


@final
class WithPeers(Collector):
    """The families of some collectors, with what other processes have of them added."""

    def __init__(self, collectors: Iterable[Collector], folder: Path) -> None:
        """`folder` is the one that all processes name; it is made as long as the one above is."""
        self._collectors = tuple(collectors)
        self._folder = folder
        # A process that is started again may get the number of one that has ended.
        self._file = folder / f"{os.getpid()}-{time.time_ns()}.json"

    def write(self) -> None:
        """Tell the others what was counted here."""
        samples = [
            (sample.name, sorted(sample.labels.items()), sample.value)
            for family in self._own()
            for sample in family.samples
        ]
        unfinished = self._file.with_suffix(".part")
        # The folder above it goes with the server; then there is nobody to tell.
        with suppress(FileNotFoundError):
            self._folder.mkdir(exist_ok=True, mode=0o700)
            unfinished.write_text(json.dumps(samples))
            unfinished.replace(self._file)

    def collect(self) -> Iterator[Metric]:
        """The families with the sums."""
        ended, there = self._of_others()
        for family in self._own():
            others = there if family.type == "gauge" else _summed((ended, there))
            own = {_key(sample): sample for sample in family.samples}
            # In the order of who has them, which keeps a series' samples together.
            missing = [key for key in others if _is_of(key[0], family) and key not in own]
            family.samples = [
                sample._replace(value=sample.value + others.get(key, 0.0))
                for key, sample in own.items()
            ]
            family.samples += [
                Sample(name, dict(labels), others[name, labels]) for name, labels in missing
            ]
            yield family

    def _own(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from collector.collect()

    def _of_others(self) -> tuple[dict[_Key, float], dict[_Key, float]]:
        """The sums of processes that have ended, and of those that are there."""
        ended: list[dict[_Key, float]] = []
        there: list[dict[_Key, float]] = []
        for file in self._folder.glob("*.json") if self._folder.exists() else ():
            # Another process may be about to write it, or the server to end.
            with suppress(OSError, ValueError):
                if file == self._file:
                    continue
                is_there = time.time() - file.stat().st_mtime < _SILENT_SECONDS
                found = {
                    (name, tuple((str(k), str(v)) for k, v in labels)): float(value)
                    for name, labels, value in json.loads(file.read_text())
                }
                (there if is_there else ended).append(found)
        return _summed(ended), _summed(there)


def _is_of(name: str, family: Metric) -> bool:
    """Whether samples of this name are a family's, of which this process may have none yet."""
    return name in {family.name + suffix for suffix in _SUFFIXES[family.type]}


def _key(sample: Sample) -> _Key:
    return sample.name, tuple(sorted(sample.labels.items()))


def _summed(parts: Iterable[dict[_Key, float]]) -> dict[_Key, float]:
    whole: dict[_Key, float] = {}
    for part in parts:
        for key, value in part.items():
            whole[key] = whole.get(key, 0.0) + value
    return whole
