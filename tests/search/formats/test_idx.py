import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from search.errors import DataError
from search.formats import idx
from tests.search.mnist_files import idx_bytes

ARRAY = np.arange(2 * 3 * 5, dtype=np.uint8).reshape(2, 3, 5)
GOOD = idx_bytes(ARRAY)


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
def test_elements_are_read_in_order_whatever_the_name_says(tmp_path: Path, pack) -> None:
    path = tmp_path / "images"
    path.write_bytes(pack(GOOD))
    np.testing.assert_array_equal(idx.read(path, dimensions=3), ARRAY)


@pytest.mark.parametrize(
    ("content", "found", "expected"),
    [
        (b"\x00\x00\x0d\x03" + GOOD[4:], "00 00 0d 03", "00 00 08 03"),
        (b"\x00\x00\x08\x01" + GOOD[4:], "00 00 08 01", "3 dimensions"),
        (b"<html>404 not found</html>", "3c 68 74 6d", "00 00 08 03"),
        (GOOD[:-1], "29 bytes", "2 x 3 x 5 = 30"),
        (GOOD + b"\x00", "31 bytes", "2 x 3 x 5 = 30"),
        (GOOD[:9], "9 bytes", "16"),
        (b"", "0 bytes", "16"),
        (b"\x00\x00\x08\x03" + struct.pack(">3I", 2**31, 2**31, 2**31), "0 bytes", "= 99035"),
        (gzip.compress(GOOD)[:-12], "damaged", "gzip"),
        (gzip.compress(GOOD)[:20] + b"\xff" * 30, "damaged", "gzip"),
        (gzip.compress(GOOD)[:-8] + b"\x00" * 8, "damaged", "CRC"),
    ],
    ids=[
        "element type",
        "dimensions",
        "not idx",
        "truncated",
        "too long",
        "header cut",
        "empty",
        "announces the impossible",
        "gzip truncated",
        "gzip damaged",
        "gzip checksum",
    ],
)
def test_a_damaged_file_is_refused_with_its_name_what_was_found_and_what_was_expected(
    tmp_path: Path, content: bytes, found: str, expected: str
) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(DataError) as refused:
        idx.read(path, dimensions=3)
    message = str(refused.value)
    assert str(path) in message
    assert found in message
    assert expected in message


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere cannot be read: No such file"):
        idx.read(tmp_path / "nowhere", dimensions=1)
