"""What is said of a user's own data: how to read an upload, and what was found in it."""

from search.documents.datasets import (
    AnyDatasetFacts,
    ArrayFacts,
    ArrayPort,
    DatasetFacts,
    Problem,
    ReadingOptions,
    SamplePreview,
)

__all__ = [
    "MOST_CLASSES",
    "SPLIT_NAMES",
    "AnyDatasetFacts",
    "ArrayFacts",
    "ArrayPort",
    "DatasetFacts",
    "Problem",
    "ReadingOptions",
    "SamplePreview",
]

SPLIT_NAMES = ("train", "validation", "test")
"""In the order of their numbers in a dataset's `split` array; -1 there is a sample in none yet."""

MOST_CLASSES = 10_000
