import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.errors import DataError
from search.formats import extreme
from tests.search.formats.fuzz import FEW, mutations, result_or_refusal

GOOD = b"4 5 3\n2,0 4:0.5 1:-2\n 0:1\n3:0\n\n"


def written(folder: Path, content: bytes) -> Path:
    path = folder / "some_train.txt"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
@pytest.mark.parametrize(
    "content",
    [GOOD, GOOD.replace(b"\n", b"\r\n"), GOOD + b"\n \n", b"\xef\xbb\xbf" + GOOD],
)
def test_samples_may_have_no_label_and_no_feature(tmp_path: Path, content: bytes, pack) -> None:
    samples = extreme.read(written(tmp_path, pack(content)))
    np.testing.assert_array_equal(
        samples.features.dense(),
        [[0, -2, 0, 0, 0.5], [1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
    )
    np.testing.assert_array_equal(samples.labels.dense(), [[1, 0, 1], *[[0, 0, 0]] * 3])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"4 5\n", "line 1: expected is a header of three sizes .* not '4 5'"),
        (b"0 5 3\n", r"line 1: '0' is not a whole number of 1\.\.2147483647"),
        (b"9 9999999999 3\n", "line 1: '9999999999' is not a whole number"),
        (b"3 5 3\n0 1:1\n0 1:1\n", "line 1: announces 3 samples, but 2 lines follow"),
        (b"1 5 3\n0 1:1\n0 1:1\n", "line 1: announces 1 samples, but 2 lines follow"),
        (b"2 5 3\n0 1:1\n3 1:1\n", r"line 3: '3' is not a whole number of 0\.\.2"),
        (b"1 5 3\n0 5:1\n", r"line 2: '5' is not a whole number of 0\.\.4"),
        (b"1 5 3\n0 1:one\n", "line 2: 'one' is not a number"),
        (b"1 5 3\n0 1\n", "line 2: expected is feature:value, not '1'"),
        (b"1 5 3\n0 1:1 1:2\n", "line 2: feature 1 occurs twice"),
        (b"1 5 3\n0,0 1:1\n", "line 2: label 0 occurs twice"),
        (b"1 5 3\n0, 1:1\n", "line 2: '' is not a whole number"),
        (b"", "line 1: expected is a header"),
    ],
)
def test_what_is_no_sample_is_refused_by_file_and_line(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    with pytest.raises(DataError, match=f"some_train.txt.*{sentence}"):
        extreme.read(written(tmp_path, content))


def test_a_part_has_the_samples_of_the_first_column(tmp_path: Path) -> None:
    path = written(tmp_path, b"3 1\n1 2\n\n4 3\n")
    assert extreme.read_rows(path, samples=4).tolist() == [2, 0, 3]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"1\n5\n", r"line 2: '5' is not a whole number of 1\.\.4"),
        (b"1\n0\n", r"line 2: '0' is not a whole number of 1\.\.4"),
        (b"1\n2\n1\n", "line 3: sample 1 is in line 1 already"),
        (b"\n", "names no sample"),
    ],
)
def test_a_part_of_samples_that_are_not_there_is_refused(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    with pytest.raises(DataError, match=f"some_train.txt.*{sentence}"):
        extreme.read_rows(written(tmp_path, content), samples=4)


NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False).filter(bool)
SAMPLES = st.tuples(st.sets(st.integers(0, 6)), st.dictionaries(st.integers(0, 9), NUMBERS))


@FEW
@given(samples=st.lists(SAMPLES, min_size=1, max_size=6))
def test_what_was_written_is_read_back(
    tmp_path: Path, samples: list[tuple[set[int], dict[int, float]]]
) -> None:
    lines = [f"{len(samples)} 10 7"]
    for labels, features in samples:
        pairs = " ".join(f"{column}:{value!r}" for column, value in features.items())
        lines.append(f"{','.join(map(str, labels))} {pairs}")
    read = extreme.read(written(tmp_path, "\n".join([*lines, ""]).encode()))
    features, labels = read.features.dense(), read.labels.dense()
    for row, (chosen, numbers) in enumerate(samples):
        assert set(np.flatnonzero(labels[row])) == chosen
        assert set(np.flatnonzero(features[row])) == numbers.keys()
        assert [features[row, column] for column in numbers] == list(numbers.values())


@FEW
@given(content=st.binary(max_size=200) | mutations(GOOD))
def test_any_bytes_give_samples_or_a_refusal(tmp_path: Path, content: bytes) -> None:
    samples = result_or_refusal(extreme.read, tmp_path / "some", content)
    if samples is not None:
        assert len(samples.features) == len(samples.labels) > 0
        for rows in (samples.features, samples.labels):
            assert np.isfinite(rows.values).all()
            assert ((rows.columns >= 0) & (rows.columns < rows.width)).all()


@FEW
@given(content=st.binary(max_size=50) | mutations(b"1 2\n3 4\n"))
def test_any_bytes_give_a_part_or_a_refusal(tmp_path: Path, content: bytes) -> None:
    rows = result_or_refusal(
        lambda path: extreme.read_rows(path, samples=9), tmp_path / "some", content
    )
    assert rows is None or set(rows.tolist()) <= set(range(9))
