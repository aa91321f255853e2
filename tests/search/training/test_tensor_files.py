"""Safetensors files that lie are found out before anything of them is believed."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.errors import CheckpointError
from search.training.tensor_files import look_through
from tests.service.model_files import raw, tensor, written

FOUR = bytes(range(4))
ONE = {"a": tensor([1], 0, 4)}

LYING: dict[str, tuple[Callable[[], bytes], tuple[str, ...]]] = {
    "empty": (lambda: b"", ("0 bytes", "safetensors.torch.save_file")),
    "seven bytes": (lambda: bytes(7), ("7 bytes",)),
    "no JSON": (lambda: raw(b"{'a': 1}"), ("no JSON",)),
    "no UTF-8": (lambda: raw(b'{"\xff": 1}'), ("utf-8",)),
    "no object": (lambda: raw([1, 2]), ("object",)),
    "no tensors": (lambda: raw({}), ("no tensors",)),
    "only metadata": (lambda: raw({"__metadata__": {"format": "pt"}}), ("no tensors",)),
    "header of 5 GB": (lambda: raw(b"{}", length=5 * 2**30), (str(5 * 2**30), "4194304")),
    "header of 2^63": (lambda: raw(b"{}", length=2**63), (str(2**63),)),
    "header behind the end": (lambda: raw(ONE, FOUR, length=4000), ("cut off", "4000")),
    "deep header": (lambda: raw(b"[" * 200_000), ("no JSON",)),
    "deep entry": (lambda: raw(b'{"a":' + b"[" * 900 + b"]" * 900 + b"}"), ("'a'",)),
    "huge number": (lambda: raw(b'{"a": ' + b"9" * 5000 + b"}"), ("no JSON",)),
    "NaN in the header": (lambda: raw(b'{"a": NaN}'), ("NaN",)),
    "a key twice": (lambda: raw(b'{"a": 1, "a": 2}'), ("'a'", "twice")),
    "metadata of numbers": (lambda: raw({"__metadata__": {"x": 1}, **ONE}, FOUR), ("texts",)),
    "metadata of a list": (lambda: raw({"__metadata__": [], **ONE}, FOUR), ("__metadata__",)),
    "no entry": (lambda: raw({"a": 7}, FOUR), ("'a'", "data_offsets")),
    "an entry more": (lambda: raw({"a": {**ONE["a"], "x": 1}}, FOUR), ("data_offsets",)),
    "three offsets": (lambda: raw({"a": {**ONE["a"], "data_offsets": [0, 2, 4]}}, FOUR), ("two",)),
    "an unknown type": (lambda: raw({"a": tensor([4], 0, 4, "Q8")}, FOUR), ("'Q8'", "BF16")),
    "integers": (lambda: raw({"a": tensor([1], 0, 4, "I32")}, FOUR), ("'a'", "'I32'", "F16")),
    "a type of no text": (lambda: raw({"a": {**ONE["a"], "dtype": 4}}, FOUR), ("'a'",)),
    "a negative size": (lambda: raw({"a": tensor([-1], 0, 4)}, FOUR), ("[-1]",)),
    "a size that is true": (lambda: raw({"a": tensor([True], 0, 4)}, FOUR), ("[True]",)),
    "a size of half": (lambda: raw({"a": tensor([0.5], 0, 4)}, FOUR), ("[0.5]",)),
    "sizes in sizes": (lambda: raw({"a": tensor([[1]], 0, 4)}, FOUR), ("[list]",)),
    "nine dimensions": (lambda: raw({"a": tensor([1] * 9, 0, 4)}, FOUR), ("up to 8",)),
    "sizes beyond all": (lambda: raw({"a": tensor([2**62] * 8, 0, 4)}, FOUR), ("takes",)),
    "a negative offset": (lambda: raw({"a": tensor([1], -4, 0)}, FOUR), ("[-4, 0]",)),
    "an end before the beginning": (lambda: raw({"a": tensor([1], 4, 0)}, FOUR), ("[4, 0]",)),
    "an offset of text": (lambda: raw({"a": tensor([1], "0", 4)}, FOUR), ("['0', 4]",)),
    "an offset of 2^64": (lambda: raw({"a": tensor([1], 0, 2**64)}, FOUR), (str(2**64),)),
    "cut off": (lambda: raw(ONE, FOUR[:3]), ("cut off", "'a'", "byte 4", "3")),
    "too few bytes": (lambda: raw({"a": tensor([2], 0, 4)}, FOUR), ("8", "4")),
    "overlap": (
        lambda: raw({"a": tensor([1], 0, 4), "b": tensor([1], 2, 6)}, bytes(6)),
        ("'a' and 'b' overlap",),
    ),
    "the same bytes twice": (
        lambda: raw({"a": tensor([1], 0, 4), "b": tensor([1], 0, 4)}, FOUR),
        ("overlap",),
    ),
    "a hole": (
        lambda: raw({"a": tensor([1], 0, 4), "b": tensor([1], 6, 10)}, bytes(10)),
        ("nobody's",),
    ),
    "something behind": (lambda: raw(ONE, FOUR + b"evil"), ("4 bytes follow",)),
    "a control character": (lambda: raw({"a\r\nb": ONE["a"]}, FOUR), ("printable",)),
    "a name from right to left": (lambda: raw({"a\u202eb": ONE["a"]}, FOUR), ("printable",)),
    "another alphabet": (lambda: raw({"²": ONE["a"]}, FOUR), ("ASCII",)),
    "no name": (lambda: raw({"": ONE["a"]}, FOUR), ("0 characters",)),
    "a long name": (lambda: raw({"a" * 5000: ONE["a"]}, FOUR), ("5000 characters",)),
    "NaN": (lambda: raw(ONE, struct.pack("<f", float("nan"))), ("'a'", "nan", "[0]")),
    "infinity": (
        lambda: raw({"a": tensor([2], 0, 4, "F16")}, struct.pack("<ee", 1.0, float("-inf"))),
        ("'a'", "-inf", "[1]", "1 of 2"),
    ),
    "beyond float32": (
        lambda: raw({"a": tensor([1], 0, 8, "F64")}, struct.pack("<d", 1e39)),
        ("'a'", "float32", "3.403e+38"),
    ),
}


def crowd(count: int) -> bytes:
    entries = {f"t{number}": tensor([1], 4 * number, 4 * number + 4) for number in range(count)}
    return raw(entries, bytes(4 * count))


@pytest.mark.parametrize("name", LYING)
def test_a_file_that_lies_is_refused_with_what_is_allowed(tmp_path: Path, name: str) -> None:
    content, words = LYING[name]
    with pytest.raises(CheckpointError) as refused:
        look_through(written(tmp_path / "f", content())).read()
    message = str(refused.value)
    assert all(word in message for word in words), message
    assert message.isprintable()
    assert len(message) < 1000
    assert str(tmp_path) not in message


@pytest.mark.parametrize(
    ("count", "words"), [(100_000, "4194304"), (20_000, r"20000 tensors.*10000")]
)
def test_very_many_tensors_are_refused(tmp_path: Path, count: int, words: str) -> None:
    with pytest.raises(CheckpointError, match=words):
        look_through(written(tmp_path / "f", crowd(count)))


FOREIGN = {
    "zip": (b"PK\x03\x04" + bytes(60), "ZIP archive"),
    "torch.save": (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "pickle"),
    "numpy": (b"\x93NUMPY\x01\x00v\x00{'descr'", "numpy"),
    "keras": (b"\x89HDF\r\n\x1a\n" + bytes(60), "HDF5"),
    "gguf": (b"GGUF\x03\x00\x00\x00\x01" + bytes(60), "GGUF"),
    "onnx": (b"\x08\x07\x12\x07pytorch" + bytes(60), "ONNX"),
    "text": (b"layer,weight\n1,2\n3,4\n", "header"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_other_formats_are_named_and_the_way_to_save_is_told(tmp_path: Path, name: str) -> None:
    content, word = FOREIGN[name]
    with pytest.raises(CheckpointError, match=word) as refused:
        look_through(written(tmp_path / "f", content))
    assert 'save_file(model.state_dict(), "model.safetensors")' in str(refused.value)


def test_what_torch_really_saves_is_refused_as_what_it_is(tmp_path: Path) -> None:
    for zipped, word in ((True, "ZIP archive"), (False, "pickle")):
        file = tmp_path / "model.pt"
        torch.save({"a": torch.ones(2)}, file, _use_new_zipfile_serialization=zipped)
        with pytest.raises(CheckpointError, match=word):
            look_through(file)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_type_is_read_as_single_precision(tmp_path: Path, dtype: torch.dtype) -> None:
    values = torch.tensor([[1.5, -2.0], [0.0, 65504.0]]).to(dtype)
    content = safetensors.torch.save({"a/b": values, "empty": torch.zeros(0, 3)}, {"who": "me"})
    file = look_through(written(tmp_path / "f", content))
    assert file.metadata == {"who": "me"}
    assert file.numbers == 4
    found = file.read()
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    torch.testing.assert_close(found["a/b"], values.float(), rtol=0, atol=0)


def headers() -> st.SearchStrategy[Any]:
    numbers = st.integers(-2, 2**65) | st.integers(0, 8) | st.booleans() | st.floats()
    scalars = st.none() | numbers | st.text(max_size=4) | st.sampled_from(["F32", "F16", "I64"])
    anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
    entry = st.fixed_dictionaries(
        {"dtype": scalars, "shape": anything, "data_offsets": st.lists(numbers, max_size=3)}
    )
    return st.dictionaries(st.text(max_size=3) | st.just("__metadata__"), entry | anything)


def assert_taken_or_refused(path: Path) -> None:
    """Nothing else is raised than what a user is told."""
    told, shapes = "", dict[str, tuple[int, ...]]()
    try:
        found = look_through(path)
        shapes = {name: tuple(read.shape) for name, read in found.read().items()}
    except CheckpointError as error:
        told = str(error)
    else:
        assert shapes == {name: stored.shape for name, stored in found.tensors.items()}
    assert told.isprintable()


@settings(max_examples=120, deadline=None)
@given(header=headers(), data=st.binary(max_size=16))
def test_any_header_is_taken_or_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, header: Any, data: bytes
) -> None:
    file = written(tmp_path_factory.getbasetemp() / "any-header", raw(header, data))
    assert_taken_or_refused(file)


@settings(max_examples=120, deadline=None)
@given(place=st.integers(0, 150), byte=st.integers(0, 255), cut=st.integers(0, 40))
def test_a_file_with_a_byte_changed_is_taken_or_refused_in_words(
    tmp_path_factory: pytest.TempPathFactory, place: int, byte: int, cut: int
) -> None:
    content = bytearray(safetensors.torch.save({"a": torch.ones(3), "b": torch.ones(2, 2)}))
    content[place % len(content)] = byte
    file = written(
        tmp_path_factory.getbasetemp() / "any-byte", bytes(content[: len(content) - cut])
    )
    assert_taken_or_refused(file)


def test_a_good_header_is_the_librarys_own(tmp_path: Path) -> None:
    content = safetensors.torch.save({"w": torch.ones(2, 3)})
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    file = look_through(written(tmp_path / "f", content))
    assert header == {"w": tensor([2, 3], 0, 24)}
    assert file.tensors["w"].shape == (2, 3)
