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


def test_parquet_that_is_none_is_told() -> None:
    assert "no whole Parquet file" in refusal(b"PAR1" * 9, ".parquet")
    assert "allowed are values" in refusal(table(y=["a"], x=[[1, 2]]), ".parquet")
