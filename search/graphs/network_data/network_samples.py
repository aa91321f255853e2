"""Samples for the inputs of a network, and the feeds that are made of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from models.graphs.documents import GraphPort
from search.errors import Fault, SpecRefused
from search.graphs.metrics import (
    DEFAULT_SHARES,
    Answers,
    Places,
    SampleSplit,
    part_sizes,
    split_samples,
)

MOST_AT_ONCE = 8
"""Samples in one feed."""

AnyArray: TypeAlias = NDArray[Any]
Feed: TypeAlias = Mapping[str, AnyArray]
_Shape: TypeAlias = tuple[int | str | None, ...]


@dataclass(frozen=True, eq=False)
class NetworkSamples:
    """Arrays by the names of inputs, samples first; other inputs are zeros."""

    inputs: tuple[GraphPort, ...]
    arrays: Mapping[str, AnyArray]
    split: SampleSplit
    each: bool
    """Whether a sample is fed as it is; else its first axis is added, and some are fed at once."""
    batch: int
    """Most samples in one feed."""

    def feeds(self, places: Places, *, batch: int | None = None) -> list[Feed]:
        """The inputs of each run, for samples at these places in their order.

        `batch` is how many are fed at once, where not one by one; None: as otherwise.
        """
        size = self.batch if batch is None or self.batch == 1 else batch
        parts = [places[start : start + size] for start in range(0, len(places), size)]
        return [self._feed(part) for part in parts]

    def first_feed(self, samples: int) -> Feed:
        """The inputs of one run on the first samples of the choosing part; each again if few."""
        places = self.split.choosing
        return self._feed(places[np.arange(1 if self.each else samples) % len(places)])

    def by_sample(self, name: str, answers: Sequence[AnyArray], samples: int) -> Answers:
        """An output's answers, from its values in each run.

        Raises:
            SpecRefused: the output's first axis is not that of the samples.
        """
        if self.each:
            return answers
        found: list[AnyArray] = []
        for answer in answers:
            found.extend(answer if answer.ndim else [answer])
        if len(found) != samples:
            raise SpecRefused(
                [
                    Fault(
                        "task.outputs",
                        f"{name!r} gives {len(found)} answers to {samples} samples; its first axis "
                        "must be that of the samples, or they must be fed one by one (each)",
                    )
                ]
            )
        return found

    def _feed(self, places: Places) -> Feed:
        given = {
            name: values[places[0]] if self.each else values[places]
            for name, values in self.arrays.items()
        }
        sizes = dict(_named_sizes(self.inputs, given))
        return {
            port.name: given[port.name]
            if port.name in given
            else np.zeros(_zero_shape(port, sizes), port.type)
            for port in self.inputs
        }


def feeds_one_by_one(inputs: Sequence[GraphPort], *, each: bool) -> bool:
    """Whether a network takes one sample at a time: it is asked for, or an input has room for 1."""
    return each or any(port.shape is not None and port.shape[:1] == (1,) for port in inputs)


def network_samples(
    inputs: Sequence[GraphPort],
    arrays: Mapping[str, AnyArray],
    *,
    each: bool = False,
    zeros: Sequence[str] = (),
    shares: Sequence[float] = DEFAULT_SHARES,
    seed: int = 0,
) -> NetworkSamples:
    """Samples for a network, drawn into parts by a seed.

    Args:
        inputs: of the network.
        arrays: by the inputs' names, samples first.
        each: whether a sample is fed as it is. Else samples are the first axis of every input.
        zeros: inputs without an array, such as first states. Sizes that inputs with an array have
            under the same name are theirs; others that the file leaves open are 1.
        shares: of calibration, choosing and test.
        seed: of the drawing.

    Raises:
        SpecRefused: see `count_samples`.
    """
    count = count_samples(inputs, arrays, each=each, zeros=zeros, shares=shares)
    return NetworkSamples(
        inputs=tuple(inputs),
        arrays=dict(arrays),
        split=split_samples(count, shares, seed=seed),
        each=each,
        batch=1 if feeds_one_by_one(inputs, each=each) else MOST_AT_ONCE,
    )


def count_samples(
    inputs: Sequence[GraphPort],
    arrays: Mapping[str, AnyArray],
    *,
    each: bool = False,
    zeros: Sequence[str] = (),
    shares: Sequence[float] = DEFAULT_SHARES,
) -> int:
    """Hold arrays against the inputs, and count their samples.

    Of arrays it looks at shapes and types alone, and takes no longer for more samples.

    Raises:
        SpecRefused: an array is missing, belongs to no input, or has another rank, type or size
            than its input, at `task.inputs.NAME`; or there are too few samples.
    """
    ports = {port.name: port for port in inputs}
    faults = [*_unknown(ports, arrays, zeros)]
    counts = {len(values) for values in arrays.values() if values.ndim}
    if len(counts) > 1:
        found = ", ".join(f"{len(values)} of {name!r}" for name, values in arrays.items())
        faults.append(Fault("task.data", f"inputs have different numbers of samples: {found}"))
    for name, port in ports.items():
        if name in arrays:
            faults.extend(_misfits(port, arrays[name], each=each))
    if not arrays:
        faults.append(Fault("task.data", "no input has samples; at least one needs them"))
    if faults:
        raise SpecRefused(faults)
    count = counts.pop()
    part_sizes(count, shares)
    return count


def _unknown(
    ports: Mapping[str, GraphPort], arrays: Mapping[str, AnyArray], zeros: Sequence[str]
) -> Iterator[Fault]:
    known = ", ".join(map(repr, ports))
    for name in (*arrays, *zeros):
        if name not in ports:
            yield Fault(f"task.inputs.{name}", f"the network has no such input; it has {known}")
    for name, port in ports.items():
        if name not in arrays and name not in zeros:
            yield Fault(
                f"task.inputs.{name}",
                f"the data have no array for it, which is {_described(port)}; give one, or name "
                "it in zeros or in fixed",
            )
        if name in arrays and name in zeros:
            yield Fault(f"task.inputs.{name}", "it has an array and is named in zeros; leave one")


def _misfits(port: GraphPort, values: AnyArray, *, each: bool) -> Iterator[Fault]:
    path = f"task.inputs.{port.name}"
    shape = values.shape[1:] if each else values.shape
    found = f"a sample is {list(shape)}" if each else f"the array is {list(shape)}"
    if values.dtype.name != port.type:
        yield Fault(path, f"the array holds {values.dtype.name}; the input takes {port.type}")
    if not values.ndim:
        yield Fault(path, "the array has no axis of samples")
        return
    if port.shape is None:
        return
    wanted: _Shape = port.shape if each else (None, *port.shape[1:])
    fits = len(shape) == len(wanted) and all(
        not isinstance(size, int) or size == own for size, own in zip(wanted, shape, strict=True)
    )
    if not fits:
        yield Fault(path, f"{found}; the input takes {_described(port)}")
    first = port.shape[0] if port.shape else None
    if not each and isinstance(first, int) and first > 1:
        yield Fault(
            path,
            f"the file takes {first} samples at once; store them as one sample, and feed each as "
            "it is (each)",
        )


def _described(port: GraphPort) -> str:
    if port.shape is None:
        return f"{port.type} of any shape"
    sizes = ", ".join("?" if size is None else str(size) for size in port.shape)
    return f"{port.type} [{sizes}]"


def _named_sizes(inputs: Sequence[GraphPort], given: Feed) -> Iterator[tuple[str, int]]:
    for port in inputs:
        if port.name in given and port.shape is not None:
            for size, own in zip(port.shape, given[port.name].shape, strict=True):
                if isinstance(size, str):
                    yield size, own


def _zero_shape(port: GraphPort, sizes: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(
        size if isinstance(size, int) else sizes.get(size or "", 1) for size in port.shape or ()
    )
