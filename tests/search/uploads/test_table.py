import csv
import io

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.errors import DataError
from tests.search.uploads.upload_cases import (
    OPTIONS,
    decoded,
    mutations,
    options,
    refusal,
    result_or_refusal,
)

GOOD = b"label,t0,t1\na,1,2\nb,3,4\na,5,-6e-1\n"


def test_a_row_is_a_sample_of_one_feature() -> None:
    found = decoded(GOOD, ".csv")
    np.testing.assert_array_equal(
        found.x[:, :, 0], np.array([[1, 2], [3, 4], [5, -0.6]], dtype=np.float32)
    )
    assert found.facts.classes == ("a", "b")
    assert found.facts.class_counts == (2, 1)
    assert found.preview[1].target == "b"
    assert found.preview[1].values == ((3.0,), (4.0,))


@pytest.mark.parametrize(
    "content",
    [
        b"\xef\xbb\xbf" + GOOD,
        GOOD.replace(b"\n", b"\r\n"),
        GOOD + b"\n\r\n\n",
        GOOD.removesuffix(b"\n"),
        GOOD.replace(b"a,", b'"a",').replace(b"t1", b'"t,\n1"'),
        GOOD.removeprefix(b"label,t0,t1\n"),
        GOOD.replace(b"1,2", b" 1 ,+2.0"),
    ],
    ids=["mark", "CRLF", "blank end", "no last line end", "quotes", "no header", "spaces"],
)
def test_ways_of_writing_the_same_table(content: bytes) -> None:
    expected, found = decoded(GOOD, ".csv"), decoded(content, ".csv")
    np.testing.assert_array_equal(found.x, expected.x)
    np.testing.assert_array_equal(found.y, expected.y)
    assert found.facts == expected.facts


def test_a_quoted_comma_stays_in_its_label() -> None:
    found = decoded(b'"up, or so",1\r\ndown,2\r\n', ".csv")
    assert found.facts.classes == ("down", "up, or so")


def test_tabs_separate_a_tsv() -> None:
    found = decoded(GOOD.replace(b",", b"\t"), ".tsv")
    np.testing.assert_array_equal(found.x, decoded(GOOD, ".csv").x)


@pytest.mark.parametrize("label", ["kind", "2"])
def test_the_target_stands_where_the_label_option_says(label: str) -> None:
    found = decoded(b"t0,t1,kind\n1,2,a\n3,4,b\n", ".csv", options(label=label))
    np.testing.assert_array_equal(found.x[:, :, 0], [[1, 2], [3, 4]])
    assert found.facts.classes == ("a", "b")


def test_a_named_target_makes_a_header_of_numbers() -> None:
    found = decoded(b"kind,0,1\na,1,2\nb,3,4\n", ".csv", options(label="kind"))
    assert found.x.shape == (2, 2, 1)


def test_numbers_are_classes_by_value_and_sorted_by_size() -> None:
    found = decoded(b"10,1\n9,2\n9.0,3\n-1e0,4\n", ".csv")
    assert found.facts.classes == ("-1", "9", "10")
    assert found.y is not None
    np.testing.assert_array_equal(found.y, [2, 1, 1, 0])


def test_broken_numbers_are_a_regression_unless_classes_are_wished() -> None:
    content = b"0.5,1\n1.5,2\n0.5,3\n"
    found = decoded(content, ".csv")
    assert found.facts.problem == "regression"
    np.testing.assert_array_equal(found.y, [[0.5], [1.5], [0.5]])
    wished = decoded(content, ".csv", options(problem="classification"))
    assert wished.facts.classes == ("0.5", "1.5")


def test_rows_are_time_steps_of_a_forecast() -> None:
    found = decoded(b"a,b\n1,2\n3,4\n5,6\n", ".csv", options(problem="forecasting"))
    np.testing.assert_array_equal(found.x, [[[1, 2], [3, 4], [5, 6]]])
    assert found.y is None
    assert found.facts.outputs == 2


def test_a_forecast_may_be_tested_on_a_series_of_another_length() -> None:
    found = decoded(b"1\n3\n5\n", ".csv", options(problem="forecasting"), test=b"7\n9\n")
    np.testing.assert_array_equal(found.x[:, :, 0], [[1, 3, 5], [7, 9, 0]])
    np.testing.assert_array_equal(found.split, [0, 2])
    assert found.lengths is not None
    np.testing.assert_array_equal(found.lengths, [3, 2])


@pytest.mark.parametrize(
    ("test", "chosen"),
    [
        (b"b,y,a\n100,cat,1\n200,dog,2\n", {"label": "y"}),
        (b"b,y,a\n100,cat,1\n200,dog,2\n", {}),
        (b"b,y,a\n100,cat,1\n200,dog,2\n", {"label": "0"}),
        (b"y,a,b\ncat,1,100\ndog,2,200\n", {}),
        (b"cat,1,100\ndog,2,200\n", {}),
    ],
    ids=["label by name", "no label", "label by number", "same order", "no header"],
)
def test_the_columns_of_a_test_file_are_found_by_name(test: bytes, chosen: dict) -> None:
    train = b"y,a,b\ncat,3,300\ndog,4,400\n"
    found = decoded(train, ".csv", options(**chosen), test=test)
    np.testing.assert_array_equal(found.x[:, :, 0], [[3, 300], [4, 400], [1, 100], [2, 200]])
    assert found.y is not None
    np.testing.assert_array_equal(found.y, [0, 1, 0, 1])
    np.testing.assert_array_equal(found.split, [0, 0, 2, 2])


def test_numbers_that_name_columns_are_found_in_a_test_file() -> None:
    train, test = b"y,0,1\n5,3,300\n6,4,400\n", b"1,0,y\n100,1,5\n200,2,6\n"
    found = decoded(train, ".csv", test=test)
    np.testing.assert_array_equal(found.x[:, :, 0], [[3, 300], [4, 400], [1, 100], [2, 200]])


def test_features_of_a_forecast_are_found_by_name() -> None:
    chosen = options(problem="forecasting")
    found = decoded(b"a,b\n1,10\n2,20\n", ".csv", chosen, test=b"b,a\n30,3\n40,4\n")
    np.testing.assert_array_equal(found.x, [[[1, 10], [2, 20]], [[3, 30], [4, 40]]])


@pytest.mark.parametrize(
    ("test", "message"),
    [
        (
            b"y,b,c\n0,1,2\n",
            "in the test file: line 1: from column 1 (from 0) on, the header is 'b', 'c'; in the "
            "training file it is 'a', 'b'; allowed are the same names, in any order",
        ),
        (b"y,a\n0,1\n", "from column 2 (from 0) on, the header is at its end; in the training"),
        (b"z,0,1\n0,1,2\n", "the header is 'z', '0', '1'; in the training file it is 'y', 'a', "),
    ],
)
def test_a_test_file_of_other_columns_is_refused(test: bytes, message: str) -> None:
    with pytest.raises(DataError) as refused:
        decoded(b"y,a,b\n0,3,300\n1,4,400\n", ".csv", test=test)
    assert message in str(refused.value)


def test_a_test_file_may_have_fewer_steps_if_series_are_padded() -> None:
    train, test = b"y,t0,t1\n0,3,300\n1,4,400\n", b"y,t0\n0,1\n1,2\n"
    found = decoded(train, ".csv", options(unequal_lengths="pad"), test=test)
    np.testing.assert_array_equal(found.x[2:, :, 0], [[1, 0], [2, 0]])


@pytest.mark.parametrize("names", ["target,0,1", "target,2019,mean", "target,1,"])
def test_a_word_above_numbers_is_the_name_of_the_target(names: str) -> None:
    found = decoded(f"{names}\n0,1.5,2\n1,2.5,3\n0,1,4\n".encode(), ".csv")
    assert found.facts.classes == ("0", "1")
    np.testing.assert_array_equal(found.x[:, :, 0], [[1.5, 2], [2.5, 3], [1, 4]])


@pytest.mark.parametrize("first", ["cat", "1"])
def test_a_word_above_other_words_is_a_class(first: str) -> None:
    found = decoded(f"{first},1,2\n1,3,4\ncat,5,6\n".encode(), ".csv")
    assert found.facts.classes == ("1", "cat")
    np.testing.assert_array_equal(found.x[:, :, 0], [[1, 2], [3, 4], [5, 6]])


@pytest.mark.parametrize(
    ("content", "chosen", "message"),
    [
        (b"", {}, "0 rows"),
        (b"\n\n", {}, "0 rows"),
        (b"label,t0\n", {}, "a header and 0 rows"),
        (b"a,1,2\nb,3\n", {}, "line 2 has 2 columns; the first row has 3"),
        (b"a,1,2\nb,3,x\n", {}, "line 2, column 2 (from 0): 'x' is not a number"),
        (b"k,t0,t1\na,1,\n", {}, "line 2, column 2 (from 0, 't1'): '' is missing"),
        (b"a,1\nb,NaN\n", {}, "line 2, column 1 (from 0): 'NaN' is missing"),
        (b"a,1\nb,inf\n", {}, "'inf' is infinite"),
        (b"k,t,t\na,1,2\n", {}, "line 1: the header names columns 1 and 2 (from 0) both 't'"),
        (b"a,1\n\nb,2\n", {}, "line 2 is blank, and line 3 goes on"),
        (b'a,1\n"b,2\n', {}, "line 2: unexpected end of data"),
        (b'a,1\n"b"c,2\n', {}, "line 2: ',' expected after '\"'"),
        (
            b"a,1\rb,2\r",
            {},
            "line 1: new-line character seen in unquoted field; lines end in LF or CRLF, not in CR",
        ),
        (b"a,1\nb,\x002\n", {}, "line 2 holds a NUL byte, at byte 3"),
        ("a,1\nä,2\n".encode("latin-1"), {}, "line 2 is not UTF-8: byte 1 is 0xe4"),
        (b"\xef\xbb\xbfa\xe4,1\nb,2\n", {}, "line 1 is not UTF-8: byte 5 is 0xe4"),
        (GOOD.decode().encode("utf-16"), {}, "line 1"),
        (b"a;1;2\nb;3;4\n", {}, "must be separated by commas; found are semicolons"),
        (b"a,1\nb,1;5\n", {}, "found are semicolons"),
        (b"a\t1\nb\t2\n", {}, "found are tabs"),
        (b"a\n", {}, "line 1 has one column"),
        (b"a," + b"1" * 10_001 + b"\n", {}, "column 1 (from 0) has 10001 characters"),
        (b"a,1\na,2\n", {}, "all 2 samples are of one class, 'a'"),
        (b"".join(b"%d,1\n" % n for n in range(50)), {}, "each of the 50 samples is of a class"),
        (b"".join(b"w%d,1\n" % (n % 10_001) for n in range(10_002)), {}, "there are 10001 classes"),
        (b"a,1\n,2\n", {}, "sample 1 (from 0) has no target: it is ''"),
        (b"a\x07,1\nb,2\n", {}, "has no usable name"),
        (
            b"k,t\na,1\n",
            {"label": "size"},
            "no column is called 'size'; the first row holds 'k', 't'",
        ),
        (b"k,t\na,1\n", {"label": "2"}, "label: 2 is no column; allowed are 0 to 1"),
        (
            b"a,1\nb,2\n",
            {"problem": "regression"},
            "has the target 'a'; a regression needs numbers",
        ),
        (b"3,1\n3,2\n", {"problem": "regression"}, "nothing to learn"),
        (b"3,1\n4,2\n", {"problem": "multilabel"}, "rows of 0 and 1"),
        (b"1,2\n", {"problem": "forecasting", "label": "0"}, "not used by forecasting"),
    ],
)
def test_a_fault_is_told_by_line_and_column(content: bytes, chosen: dict, message: str) -> None:
    assert message in refusal(content, ".csv", options(**chosen))


@settings(deadline=None, max_examples=60)
@given(
    content=st.one_of(st.binary(max_size=200), mutations(GOOD)),
    suffix=st.sampled_from([".csv", ".tsv"]),
    chosen=OPTIONS,
)
def test_any_bytes_are_read_or_refused(content: bytes, suffix: str, chosen) -> None:
    result_or_refusal(content, suffix, chosen)


@settings(deadline=None, max_examples=60)
@given(
    rows=st.lists(
        st.lists(
            st.one_of(
                st.sampled_from(["", "?", "nan", "label", "1e999", "0", "1", "-0.5", "1_0", "٣"]),
                st.text(max_size=5),
            ),
            min_size=1,
            max_size=4,
        ),
        max_size=6,
    ),
    chosen=OPTIONS,
)
def test_any_table_is_read_or_refused(rows: list[list[str]], chosen) -> None:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    content = text.getvalue().encode(errors="surrogatepass")
    result_or_refusal(content, ".csv", chosen)


@settings(deadline=None, max_examples=30)
@given(
    table=st.integers(1, 5).flatmap(
        lambda width: st.lists(
            st.lists(
                st.floats(width=32, allow_nan=False, allow_infinity=False),
                min_size=width,
                max_size=width,
            ),
            min_size=2,
            max_size=8,
        )
    ),
    suffix=st.sampled_from([(".csv", ","), (".tsv", "\t")]),
    header=st.booleans(),
)
def test_what_was_written_is_read(table, suffix: tuple[str, str], header: bool) -> None:
    text = io.StringIO()
    writer = csv.writer(text, delimiter=suffix[1])
    if header:
        writer.writerow(["kind", *(f"t{step}" for step in range(len(table[0])))])
    writer.writerows([f"odd, {index % 2}", *row] for index, row in enumerate(table))
    found = decoded(text.getvalue().encode(), suffix[0])
    np.testing.assert_array_equal(found.x[:, :, 0], np.array(table, dtype=np.float32))
    np.testing.assert_array_equal(found.y, np.arange(len(table)) % 2)
