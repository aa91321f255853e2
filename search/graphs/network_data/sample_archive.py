"""Samples from a user's .npz archive."""

from collections.abc import Sequence
from typing import BinaryIO

from models.graphs.documents import GraphPort
from search.formats import zipped_arrays
from search.graphs.metrics import DEFAULT_SHARES
from search.graphs.network_data.network_samples import NetworkSamples, network_samples

MOST_DIMENSIONS = 8
"""Of an array, with that of the samples."""


def read_samples(
    stream: BinaryIO,
    inputs: Sequence[GraphPort],
    *,
    most_bytes: int,
    each: bool = False,
    zeros: Sequence[str] = (),
    shares: Sequence[float] = DEFAULT_SHARES,
    seed: int = 0,
) -> NetworkSamples:
    """Read one array for each input, by its name; see `network_samples`.

    Raises:
        DataError: the archive is damaged, unsafe, holds more than `most_bytes`, or another name.
        SpecRefused: arrays do not fit the inputs, or there are too few samples.
    """
    arrays = zipped_arrays.read(
        stream,
        allowed=[port.name for port in inputs],
        most_bytes=most_bytes,
        most_dimensions=MOST_DIMENSIONS,
    )
    return network_samples(inputs, arrays, each=each, zeros=zeros, shares=shares, seed=seed)
