"""Uploads of arrays for a network's inputs: read without trusting them, and kept as they are.

`read_arrays` reads a user's file, `write_arrays` the container that is made of it, and
`array_facts` and `stored_arrays` read that again.
"""

from search.uploads.arrays.array_container import (
    NO_ARRAYS,
    NO_SAMPLES,
    array_facts,
    holds_arrays,
    refuse_arrays,
    stored_arrays,
    write_arrays,
)
from search.uploads.arrays.array_files import ARRAY_SUFFIXES, TYPES, facts_of, read_arrays

__all__ = [
    "ARRAY_SUFFIXES",
    "NO_ARRAYS",
    "NO_SAMPLES",
    "TYPES",
    "array_facts",
    "facts_of",
    "holds_arrays",
    "read_arrays",
    "refuse_arrays",
    "stored_arrays",
    "write_arrays",
]
