"""The samples that a network of others is run on: arrays for its inputs, in three parts."""

from search.graphs.network_data.network_samples import (
    NetworkSamples,
    count_samples,
    feeds_one_by_one,
    network_samples,
)
from search.graphs.network_data.sample_archive import read_samples

__all__ = [
    "NetworkSamples",
    "count_samples",
    "feeds_one_by_one",
    "network_samples",
    "read_samples",
]
