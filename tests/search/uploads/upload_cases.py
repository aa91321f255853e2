"""What the tests of every parser of users' files share."""

import gzip
import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from search.errors import DataError
from search.uploads import container
from search.uploads.container import Decoded
from search.uploads.dataset_metadata import ReadingOptions
from search.uploads.decoding import decode
from tests.real_data import real_data

MOST_BYTES = 2**24

OPTIONS = st.builds(
    ReadingOptions,
    problem=st.sampled_from([None, "classification", "regression", "multilabel", "forecasting"]),
    label=st.sampled_from([None, "0", "1", "label", "7"]),
    unequal_lengths=st.sampled_from(["refuse", "pad"]),
    missing=st.sampled_from(["refuse", "mean"]),
)


def decoded(
    content: bytes, suffix: str, options: ReadingOptions | None = None, *, test: bytes | None = None
) -> Decoded:
    """What is read, which must survive its container and hold what it promises."""
    files = {"file": io.BytesIO(content)}
    if test is not None:
        files["test"] = io.BytesIO(test)
    found = decode(files, suffix=suffix, options=options or ReadingOptions(), most_bytes=MOST_BYTES)
    kept = container.to_bytes(found)
    again = container.read(io.BytesIO(kept))
    assert container.to_bytes(again) == kept
    np.testing.assert_array_equal(again.x, found.x)
    np.testing.assert_array_equal(again.split, found.split)
    assert again.facts == found.facts
    assert again.preview == found.preview
    assert np.isfinite(found.x).all()
    assert found.y is None or np.isfinite(found.y).all()
    return found


def refusal(
    content: bytes,
    suffix: str,
    options: ReadingOptions | None = None,
    *,
    most_bytes: int = MOST_BYTES,
) -> str:
    """The sentence that refuses a file."""
    files, given = {"file": io.BytesIO(content)}, options or ReadingOptions()
    with pytest.raises(DataError) as refused:
        decode(files, suffix=suffix, options=given, most_bytes=most_bytes)
    return str(refused.value)


def result_or_refusal(content: bytes, suffix: str, options: ReadingOptions) -> Decoded | str:
    """A sound dataset or a sentence; every other error goes on."""
    try:
        return decoded(content, suffix, options)
    except DataError as error:
        return str(error)


def options(**chosen: Any) -> ReadingOptions:
    return ReadingOptions(**chosen)


@st.composite
def mutations(draw: st.DrawFn, content: bytes) -> bytes:
    """A file in which a few stretches of bytes were replaced, removed or repeated."""
    mutated = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(mutated)))
        end = min(len(mutated), begin + draw(st.integers(0, 12)))
        kept = bytes(mutated[begin:end])
        mutated[begin:end] = draw(st.one_of(st.binary(max_size=8), st.just(kept * 2)))
    return bytes(mutated)


def npz_bytes(arrays: Mapping[str, Any], *, packed: bool = False) -> bytes:
    stream = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(stream, **arrays)
    return stream.getvalue()


def real_file(name: str) -> bytes:
    """A file of the user's data folder, unpacked; without such a folder the test is skipped."""
    path = real_data() / name
    if path.exists():
        return path.read_bytes()
    packed = path.with_name(f"{path.name}.gz")
    if not packed.exists():
        pytest.skip(f"{packed} is not there")
    return gzip.decompress(packed.read_bytes())
