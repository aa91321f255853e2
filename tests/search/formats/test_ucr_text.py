import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.errors import DataError
from search.formats import ucr_text as ucr
from tests.search.formats.fuzz import FEW, mutations, result_or_refusal

GOOD = b"2\t-0.5\t1e-05\t3\n-1\t.5\t+2.\t4.25\n"


def written(folder: Path, content: bytes) -> Path:
    path = folder / "Some_TRAIN.tsv"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
@pytest.mark.parametrize(
    "content",
    [
        GOOD,
        GOOD.replace(b"\t", b","),
        GOOD.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + GOOD,
        b"  2.0000000e+00  -5.0e-01   1.0e-05 3\n\n -1.0 0.5 2 4.25",
    ],
    ids=["2018", "2015", "CRLF", "mark", "blanks"],
)
def test_labels_and_values_are_read_however_they_are_separated(
    tmp_path: Path, content: bytes, pack
) -> None:
    series = ucr.read(written(tmp_path, pack(content)))
    np.testing.assert_array_equal(
        series.values, np.array([[-0.5, 1e-5, 3], [0.5, 2, 4.25]], np.float32)
    )
    assert series.labels.tolist() == [2, -1]
    assert series.lengths.tolist() == [3, 3]
    assert series.comma_separated == (b"," in content)


def test_series_end_where_their_line_does_or_where_only_nan_follows(tmp_path: Path) -> None:
    series = ucr.read(written(tmp_path, b"1\t1\tNaN\tnan\n2\t1\t2\n3\t1\t2\t3\n"))
    assert series.lengths.tolist() == [1, 2, 3]
    np.testing.assert_array_equal(series.values, [[1, 0, 0], [1, 2, 0], [1, 2, 3]])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"1\t2\n1.5\t2\n", "line 2: the label '1.5' is not a whole number"),
        (b"1\t2\n\nx\t2\n", "line 3: 'x' is not a number"),
        (b"99999999999\t2\n", "line 1: the label '99999999999' is not a whole number of"),
        (b"1\t2\n1\tNaN\t2\n", r"line 2: value 1 is missing \(NaN\)"),
        (b"1\tNaN\tNaN\n", "line 1: no value follows the label '1'"),
        (b"1\n", "line 1: no value follows the label '1'"),
        (b"1,2,,3\n", "line 1: '' is not a number"),
        (b"1\tinf\n", "line 1: 'inf' is not a number"),
        (b"1\t1_0\n", "line 1: '1_0' is not a number"),
        ("1\t\N{ARABIC-INDIC DIGIT ONE}\n".encode(), "line 1: .* is not a number"),
        (b"1\t1e39\n", "line 1: '1e39' is beyond 3.403e.38"),
        (b"1\t2\n1\t\xff\n", "line 2: byte 6 is 0xff"),
        (b"1\t" + b"9" * 10**6 + b"x\n", "line 1: '9{40}...' is not a number"),
        (b"\n\n", "holds no series"),
        (gzip.compress(GOOD)[:-9], "damaged"),
    ],
)
def test_what_is_no_series_is_refused_by_file_and_line(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    with pytest.raises(DataError, match=f"Some_TRAIN.tsv.*{sentence}"):
        ucr.read(written(tmp_path, content))


def test_a_long_series_among_many_short_ones_is_refused_before_it_fills_the_memory(
    tmp_path: Path,
) -> None:
    content = b"1\t" + b"\t".join([b"1"] * 20_000) + b"\n" + b"1\t1\n" * 20_000
    with pytest.raises(DataError, match="20001 series of up to 20000 values"):
        ucr.read(written(tmp_path, content))


VALUES = st.floats(width=32, allow_nan=False, allow_infinity=False)


@FEW
@given(
    rows=st.lists(
        st.tuples(st.integers(-(2**31) + 1, 2**31 - 1), st.lists(VALUES, min_size=1, max_size=6)),
        min_size=1,
        max_size=6,
    ),
    separator=st.sampled_from(["\t", ",", " ", "  "]),
)
def test_what_was_written_is_read_back(
    tmp_path: Path, rows: list[tuple[int, list[float]]], separator: str
) -> None:
    lines = [separator.join([str(label), *map(repr, values)]) for label, values in rows]
    series = ucr.read(written(tmp_path, "\n".join(lines).encode()))
    assert series.labels.tolist() == [label for label, _ in rows]
    for row, length, (_, values) in zip(series.values, series.lengths, rows, strict=True):
        assert row[:length].tolist() == values
        assert not row[length:].any()


@FEW
@given(content=st.binary(max_size=200) | mutations(GOOD))
def test_any_bytes_give_finite_series_or_a_refusal(tmp_path: Path, content: bytes) -> None:
    series = result_or_refusal(ucr.read, tmp_path / "some", content)
    if series is not None:
        assert np.isfinite(series.values).all()
        assert len(series.values) == len(series.labels) == len(series.lengths) > 0
        assert series.lengths.min() >= 1
        assert series.lengths.max() == series.values.shape[1]
