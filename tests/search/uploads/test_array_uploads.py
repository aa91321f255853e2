"""Arrays of users: read without trusting them, and kept so that equal ones are equal bytes."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.errors import DataError
from search.formats.zipped_arrays import LONGEST_NAME
from search.uploads import container
from search.uploads.arrays import (
    TYPES,
    array_facts,
    facts_of,
    holds_arrays,
    read_arrays,
    stored_arrays,
    write_arrays,
)
from tests.search.uploads.upload_cases import decoded, mutations, npz_bytes

MOST = 2**20


def read(**arrays: Any) -> Any:
    return read_arrays(io.BytesIO(npz_bytes(arrays)), MOST)


def kept(**arrays: Any) -> bytes:
    stream = io.BytesIO()
    write_arrays(stream, read(**arrays))
    return stream.getvalue()


@pytest.mark.parametrize("name", TYPES)
def test_every_type_comes_back_as_it_was(name: str) -> None:
    array = np.arange(12).reshape(3, 4).astype(name)
    content = kept(a=array)
    found = stored_arrays(io.BytesIO(content))["a"]
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    facts = array_facts(io.BytesIO(content))
    assert [(port.name, port.type, port.shape) for port in facts.arrays] == [("a", name, (4,))]
    assert facts.samples == 3


def test_another_order_of_bytes_or_axes_gives_the_same_bytes() -> None:
    array = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert kept(a=array.astype(">f4")) == kept(a=array)
    assert kept(a=np.asfortranarray(array)) == kept(a=array)


def test_the_same_arrays_have_the_same_bytes_in_any_order() -> None:
    one, other = np.ones(3, dtype=np.int8), np.zeros((3, 2))
    content = kept(b=one, a=other)
    assert content == kept(a=other, b=one)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        assert arrays.files == ["a", "b"]


def test_names_are_anybodys() -> None:
    names = ("input/ids:0", "x.npy", "../../etc/passwd", "größe", "about", "x", "split")
    arrays = {name: np.ones(2) for name in names}
    found = stored_arrays(io.BytesIO(kept(**arrays)))
    assert list(found) == sorted(names)


@pytest.mark.parametrize("name", ["", "a\nb", "a" * (LONGEST_NAME + 1)])
def test_names_that_cannot_be_shown_are_refused(name: str) -> None:
    with pytest.raises(DataError, match="allowed are the keys of up to 1000 letters"):
        read(**{name: np.ones(2)})


def test_what_is_too_large_is_refused_by_its_header() -> None:
    with pytest.raises(DataError, match=f"at most {MOST}"):
        read(a=np.zeros((2, MOST), dtype=np.uint8))


def test_containers_are_told_apart(tmp_path: Path) -> None:
    arrays, samples = tmp_path / "arrays", tmp_path / "samples"
    # The names of a container of samples.
    arrays.write_bytes(kept(x=np.ones(2), split=np.ones(2), about=np.ones(2)))
    samples.write_bytes(container.to_bytes(decoded(b"a,1,2\nb,3,4\n", ".csv")))
    with pytest.raises(DataError, match='a task "model_outputs" reads'):
        container.read(arrays)
    for ask in (array_facts, stored_arrays):
        with pytest.raises(DataError, match="holds samples to train on"):
            ask(samples)
        with pytest.raises(DataError, match="cannot be read: No such file"):
            ask(tmp_path / "nowhere")
    assert holds_arrays(io.BytesIO(arrays.read_bytes()))
    assert not holds_arrays(io.BytesIO(b"no archive"))


GOOD = npz_bytes({"a": np.ones((3, 2), dtype=np.float32), "b": np.arange(3)})


@settings(max_examples=300, deadline=None)
@given(st.one_of(mutations(GOOD), st.binary(max_size=64)))
def test_any_bytes_are_arrays_or_a_sentence(content: bytes) -> None:
    try:
        found = read_arrays(io.BytesIO(content), MOST)
    except DataError:
        return
    assert facts_of(found).samples >= 1
