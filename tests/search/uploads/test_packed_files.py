"""Files that gzip packed, and Parquet files: the same data sets as the plain files."""

import gzip
import io

import numpy as np
import pyarrow as arrow
import pytest
from pyarrow import parquet

from tests.search.uploads.upload_cases import decoded, options, refusal

CSV = b"label,one,two\na,1,2\nb,3,4.5\na,-5,6e-1\n"
TS = b"@classLabel true a b\n@data\n1,2,3:a\n4,5,6:b\n"


@pytest.mark.parametrize(
    ("content", "suffix"), [(CSV, ".csv"), (CSV.replace(b",", b"\t"), ".tsv"), (TS, ".ts")]
)
def test_a_packed_file_is_the_file(content: bytes, suffix: str) -> None:
    plain, packed = decoded(content, suffix), decoded(gzip.compress(content), f"{suffix}.gz")
    np.testing.assert_array_equal(packed.x, plain.x)
    np.testing.assert_array_equal(packed.y, plain.y)
    assert packed.facts == plain.facts


def test_the_limit_counts_what_comes_out() -> None:
    bomb = gzip.compress(b"a,1\n" + b" " * 2**24)
    assert len(bomb) < 2**15
    told = refusal(bomb, ".csv.gz", most_bytes=2**20)
    assert told == f"unpacked, the file has more than {2**20} bytes"


@pytest.mark.parametrize("damaged", [CSV, b"", gzip.compress(CSV)[:-9], b"\x1f\x8b" + CSV])
def test_damage_is_told(damaged: bytes) -> None:
    assert refusal(damaged, ".csv.gz").startswith(("the file is no whole gzip file", "the table"))


def table(**columns: object) -> bytes:
    file = io.BytesIO()
    parquet.write_table(arrow.table(columns), file)
    return file.getvalue()


def test_a_parquet_table_is_the_table() -> None:
    content = table(label=["a", "b", "a"], one=[1, 3, -5], two=[2.0, 4.5, 0.6])
    plain, found = decoded(CSV, ".csv"), decoded(content, ".parquet")
    np.testing.assert_array_equal(found.x, plain.x)
    assert found.facts == plain.facts
    missing = table(label=["a", "b", "a"], one=[1.0, None, 3.0])
    assert "missing" in refusal(missing, ".parquet")
    assert decoded(missing, ".parquet", options(missing="mean")).facts.missing_values == 1


def test_the_columns_of_parquet_have_names_even_if_these_are_numbers() -> None:
    content = table(**{"2": [0, 1, 0], "0": [1.5, 2.5, 1.0], "1": [2, 3, 4]})
    found = decoded(content, ".parquet")
    np.testing.assert_array_equal(found.x[:, :, 0], [[1.5, 2], [2.5, 3], [1, 4]])
    assert found.facts.classes == ("0", "1")
    series = table(**{"0": [1.0, 2.0], "1": [3.0, 4.0]})
    swapped = table(**{"1": [7.0, 8.0], "0": [5.0, 6.0]})
    chosen = options(problem="forecasting")
    found = decoded(series, ".parquet", chosen, test=swapped)
    np.testing.assert_array_equal(found.x, [[[1, 3], [2, 4]], [[5, 7], [6, 8]]])


@pytest.mark.parametrize(
    "values", [[None, 1.0, 3.0], [1.0, None, 3.0], [1.0, 3.0, None], ["1", "3", ""]]
)
def test_nulls_of_a_single_column_are_missing_values(values: list) -> None:
    content = table(a=values)
    chosen = options(problem="forecasting", missing="mean")
    found = decoded(content, ".parquet", chosen)
    expected = [2 if value in (None, "") else float(value) for value in values]
    np.testing.assert_array_equal(found.x[0, :, 0], expected)
    assert found.facts.missing_values == 1
    assert "'?' is missing" in refusal(content, ".parquet", options(problem="forecasting"))


def test_a_null_is_no_target() -> None:
    content = table(y=["a", "b", None], x=[1.0, 2.0, 3.0])
    assert "sample 2 (from 0) has no target: it is '?'" in refusal(content, ".parquet")


def test_parquet_that_is_none_is_told() -> None:
    assert "no whole Parquet file" in refusal(b"PAR1" * 9, ".parquet")
    assert "allowed are values" in refusal(table(y=["a"], x=[[1, 2]]), ".parquet")
