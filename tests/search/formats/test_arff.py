import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from search.errors import DataError
from search.formats import arff, label_names
from tests.search.formats.fuzz import FEW, mutations, result_or_refusal

HEADER = b"""% a comment
@RELATION 'some: -C 2'

@attribute a numeric
@ATTRIBUTE 'b c' REAL
@attribute "d" {0,1}
@attribute e\\'f { '0' , '1' }
@Data
"""
DENSE = HEADER + b"0.5, -1e-3,1,0\n% between\n\n0,0,'0',1\n"
SPARSE = HEADER + b"{0 0.5,1 -1e-3, 2 1}\n{3 1 }\n"
MARK = b"\xef\xbb\xbf"
LABELS = b'<?xml version="1.0" encoding="utf-8"?>\n<labels xmlns="http://x">\n<label name="a"/>\n'


def written(folder: Path, content: bytes, name: str = "some-train.arff") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
@pytest.mark.parametrize("content", [DENSE, SPARSE, SPARSE.replace(b"\n", b"\r\n"), MARK + DENSE])
def test_dense_and_sparse_rows_say_the_same(tmp_path: Path, content: bytes, pack) -> None:
    table = arff.read(written(tmp_path, pack(content)))
    assert [attribute.name for attribute in table.attributes] == ["a", "b c", "d", "e\\'f"]
    np.testing.assert_array_equal(
        table.rows.dense(), np.array([[0.5, -1e-3, 1, 0], [0, 0, 0, 1]], np.float32)
    )


def test_a_sparse_row_leaves_out_the_first_of_listed_numbers(tmp_path: Path) -> None:
    header = b"@attribute a {1,0}\n@attribute b numeric\n@attribute c {2,1,0}\n@data\n"
    table = arff.read(written(tmp_path, header + b"{1 5}\n{0 0,2 1}\n{}\n"))
    np.testing.assert_array_equal(table.rows.dense(), [[1, 5, 2], [0, 0, 1], [1, 0, 2]])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            b"@attribute a string\n",
            "line 1: the attribute 'a' is of type 'string'; allowed",
        ),
        (b"@attribute a {red,blue}\n", "line 1: 'red' is not a number"),
        (b"@attribute a real\n@attribute 'a' real\n", "line 2: the attribute 'a' occurs twice"),
        (b"@attribut a real\n", "line 1: expected are @relation"),
        (HEADER + b"1,1,1\n", "line 9: 3 values for 4 attributes"),
        (HEADER + b"1,?,1,0\n", r"line 9: '\?' is not a number"),
        (HEADER + b"1,1,2,0\n", "line 9: the attribute 'd' is '2'; allowed are 0, 1"),
        (HEADER + b"{4 1}\n", r"line 9: '4' is not a whole number of 0\.\.3"),
        (HEADER + b"{0 1,0 2}\n", "line 9: column 0 occurs twice"),
        (HEADER + b"{0 1\n", "line 9: the sparse row does not end with }"),
        (HEADER + b"{0}\n", "line 9: expected is a column and its value, not '0'"),
        (HEADER, "holds no row"),
        (b"@data\n", "holds no attribute"),
        (b"@attribute a real\n", "holds no line @data"),
    ],
)
def test_what_is_no_table_of_numbers_is_refused_by_file_and_line(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    with pytest.raises(DataError, match=f"some-train.arff.*{sentence}"):
        arff.read(written(tmp_path, content))


NUMBERS = st.floats(width=32, allow_nan=False, allow_infinity=False)


@FEW
@given(
    rows=st.lists(
        st.lists(
            st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3
        ),
        min_size=1,
        max_size=6,
    )
)
def test_what_was_written_is_read_back_from_both_kinds_of_rows(
    tmp_path: Path, rows: list[list[float]]
) -> None:
    header = "".join(f"@attribute x{i} numeric\n" for i in range(3)) + "@data\n"
    dense = "\n".join(",".join(map(repr, row)) for row in rows)
    sparse = "\n".join(
        "{" + ",".join(f"{i} {value!r}" for i, value in enumerate(row) if value) + "}"
        for row in rows
    )
    for body in (dense, sparse):
        table = arff.read(written(tmp_path, (header + body).encode()))
        np.testing.assert_array_equal(table.rows.dense(), np.array(rows, np.float32))


@FEW
@given(content=st.binary(max_size=200) | mutations(DENSE) | mutations(SPARSE))
def test_any_bytes_give_finite_rows_or_a_refusal(tmp_path: Path, content: bytes) -> None:
    table = result_or_refusal(arff.read, tmp_path / "some", content)
    if table is not None:
        dense = table.rows.dense()
        assert dense.shape[1] == len(table.attributes)
        assert np.isfinite(dense).all()


def test_the_labels_names_are_taken_from_any_depth(tmp_path: Path) -> None:
    content = LABELS + b'<label name="b &amp; c"><label name="d"></label></label>\n</labels>'
    assert label_names.read(written(tmp_path, content)) == ("a", "b & c", "d")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'<!DOCTYPE a [<!ENTITY b "c">]>\n<labels/>', "line 1: a document type"),
        ('<!DOCTYPE a [<!ENTITY b "c">]>\n<labels/>'.encode("utf-16"), "line 1: a document type"),
        (LABELS + b'<label name="a"/></labels>', "line 4: the label 'a' was named in line 3 alr"),
        (LABELS + b"<label/></labels>", "line 4: a label without a name"),
        (LABELS, "line 4: not well-formed XML"),
        (b'<?xml version="1.0" encoding="klingon"?><labels/>', "line 1: not well-formed XML"),
        (b"", "line 1: not well-formed XML: no element found"),
        (b"<labels/>", "names no label"),
    ],
)
def test_what_names_no_labels_is_refused_by_file_and_line(
    tmp_path: Path, content: bytes, sentence: str
) -> None:
    with pytest.raises(DataError, match=f"some.xml.*{sentence}"):
        label_names.read(written(tmp_path, content, "some.xml"))


@FEW
@given(content=st.binary(max_size=100) | mutations(LABELS + b"</labels>"))
def test_any_bytes_give_names_or_a_refusal(tmp_path: Path, content: bytes) -> None:
    names = result_or_refusal(label_names.read, tmp_path / "some", content)
    if names is not None:
        assert len(set(names)) == len(names) > 0
