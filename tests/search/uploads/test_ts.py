import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.uploads import text_lines
from tests.search.uploads.upload_cases import (
    OPTIONS,
    decoded,
    mutations,
    options,
    real_file,
    refusal,
    result_or_refusal,
)

GOOD = b"""# a comment
@problemName Toy
@timestamps FALSE
@univariate false
@dimensions 2
@classLabel true up down

@data
1,2,3:4,5,6:up
-1,-2.5,-3e-1:4,5,6:down

# in between
1,2,3:4,5,7:up
"""


def _cases(*lines: str, header: str = "@classLabel true a b") -> bytes:
    return "\n".join([header, "@data", *lines, ""]).encode()


def test_dimensions_become_features_and_labels_are_sorted() -> None:
    found = decoded(GOOD, ".ts")
    assert found.x.shape == (3, 3, 2)
    np.testing.assert_array_equal(found.x[1], [[-1, 4], [-2.5, 5], [np.float32(-0.3), 6]])
    assert found.facts.classes == ("down", "up")
    assert found.facts.class_counts == (1, 2)
    assert found.y is not None
    np.testing.assert_array_equal(found.y, [1, 0, 1])
    assert found.lengths is None
    assert found.facts.samples == {"unassigned": 3}


def test_a_test_file_becomes_the_test_split() -> None:
    found = decoded(GOOD, ".ts", test=GOOD)
    assert found.facts.samples == {"train": 3, "test": 3}
    np.testing.assert_array_equal(found.split, [0, 0, 0, 2, 2, 2])


def test_unequal_lengths_are_padded_behind_only_if_wished() -> None:
    ragged = _cases("1,2,3:a", "4,5:b", "6,7:a")
    assert "from 2 to 3 steps" in refusal(ragged, ".ts")
    found = decoded(ragged, ".ts", options(unequal_lengths="pad"))
    assert found.lengths is not None
    np.testing.assert_array_equal(found.lengths, [3, 2, 2])
    np.testing.assert_array_equal(found.x[:, :, 0], [[1, 2, 3], [4, 5, 0], [6, 7, 0]])
    assert (found.facts.shortest, found.facts.steps) == (2, 3)


def test_a_missing_value_is_refused_or_its_features_mean_without_the_padding() -> None:
    content = _cases("1,?,3:a", "4,5:b", "6,7:a")
    assert "line 3, dimension 1, value 2: '?' is missing" in refusal(content, ".ts")
    found = decoded(content, ".ts", options(unequal_lengths="pad", missing="mean"))
    assert found.x[0, 1, 0] == pytest.approx((1 + 3 + 4 + 5 + 6 + 7) / 6)
    assert found.facts.missing_values == 1


def test_a_mean_is_taken_over_the_training_samples_alone() -> None:
    found = decoded(
        _cases("1,?:a", "4,5:b"), ".ts", options(missing="mean"), test=_cases("100,?:a", "9,9:b")
    )
    np.testing.assert_allclose(found.x[:, 1, 0], [10 / 3, 5, 10 / 3, 9], rtol=1e-6)


def test_a_target_label_is_a_regression_and_none_a_forecast() -> None:
    numbers = decoded(_cases("1,2:0.5", "3,4:2", header="@targetlabel true"), ".ts")
    assert numbers.facts.problem == "regression"
    np.testing.assert_array_equal(numbers.y, [[0.5], [2]])
    series = decoded(_cases("1,2,3:4,5,6", header="@classLabel false"), ".ts")
    assert series.facts.problem == "forecasting"
    assert series.x.shape == (1, 3, 2)
    assert series.y is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "without a line @data"),
        (b"1,2:a\n", "line 1 begins with '1,2:a'"),
        (b"@data\n1,2:a\n", "line 1: the header lacks both @classLabel and @targetLabel"),
        (b"@classLabel maybe\n@data\n", "@classlabel is 'maybe'; true or false"),
        (b"@classLabel true\n@data\n", "names no labels"),
        (
            b"@classLabel true a\n@CLASSLABEL true b\n@data\n",
            "line 2: the header has '@CLASSLABEL' twice",
        ),
        (b"@timeStamps true\n@classLabel true a b\n@data\n", "time stamps are not read"),
        (_cases(), "0 cases follow the @data of line 2"),
        (_cases("1,2:a", "1,2:c"), "line 4: the label 'c' is not in the header's list ('a', 'b')"),
        (_cases("1,2:3,4:a", "1,2:b"), "line 4 has 1 dimensions; the first case has 2"),
        (_cases("1,2:3:a"), "line 3, dimension 2 has 1 values; dimension 1 has 2"),
        (_cases("1,2::a"), "line 3, dimension 2 is empty"),
        (_cases("a"), "line 3 has a label and no values"),
        (_cases("1,x:a"), "line 3, dimension 1, value 2: 'x' is not a number"),
        (_cases("1,1_0:a"), "'1_0' is not a number"),
        (_cases("1,-inf:a"), "value 2: '-inf' is infinite"),
        (_cases("1,1e39:a"), "'1e39' is infinite, or beyond single precision"),
        (_cases("1:a", "2:a"), "all 2 samples are of one class, 'a'"),
        (
            _cases("1:2:a", header="@dimensions 3\n@classLabel true a b"),
            "line 4 has 2 dimensions; the header announces '3'",
        ),
        (
            _cases("1:2:a", header="@univariate true\n@classLabel true a b"),
            "the header says @univariate true",
        ),
        (_cases("1\0:a"), "line 3 holds a NUL byte, at byte 2"),
        (_cases("1:a").replace(b"1", b"\xff"), "line 3 is not UTF-8: byte 1 is 0xff"),
    ],
)
def test_a_fault_is_told_by_its_line(content: bytes, message: str) -> None:
    assert message in refusal(content, ".ts")


def test_a_line_without_end_is_refused_before_it_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_lines, "LONGEST_LINE", 100)
    assert "line 3 is longer than 100 bytes" in refusal(_cases("1," * 100 + "1:a"), ".ts")


@settings(deadline=None, max_examples=60)
@given(content=st.one_of(st.binary(max_size=200), mutations(GOOD)), chosen=OPTIONS)
def test_any_bytes_are_read_or_refused(content: bytes, chosen) -> None:
    result_or_refusal(content, ".ts", chosen)


@settings(deadline=None, max_examples=60)
@given(
    header=st.lists(
        st.sampled_from(
            ["@classLabel true a b", "@classLabel false", "@targetLabel true", "@dimensions 2", "@"]
        ),
        max_size=3,
    ),
    cases=st.lists(st.text(alphabet="12.?,:ab-e\r#@ ", max_size=20), max_size=6),
    chosen=OPTIONS,
)
def test_any_structure_is_read_or_refused(header: list[str], cases: list[str], chosen) -> None:
    result_or_refusal("\n".join([*header, "@data", *cases]).encode(), ".ts", chosen)


@settings(deadline=None, max_examples=30)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=2, max_size=8),
    features=st.integers(1, 3),
    data=st.data(),
)
def test_what_was_written_is_read(lengths: list[int], features: int, data: st.DataObject) -> None:
    number = st.floats(width=32, allow_nan=False, allow_infinity=False)
    series = [
        data.draw(
            st.lists(st.lists(number, min_size=n, max_size=n), min_size=features, max_size=features)
        )
        for n in lengths
    ]
    lines = [
        ":".join(",".join(repr(value) for value in dimension) for dimension in one)
        + f":{'ab'[i % 2]}"
        for i, one in enumerate(series)
    ]
    found = decoded(_cases(*lines), ".ts", options(unequal_lengths="pad"))
    for x, one in zip(found.x, series, strict=True):
        np.testing.assert_array_equal(x[: len(one[0])], np.array(one, dtype=np.float32).T)
        assert not x[len(one[0]) :].any()
    assert found.y is not None
    np.testing.assert_array_equal(found.y, np.arange(len(lengths)) % 2)


def test_basic_motions_is_read_whole() -> None:
    folder = "uea/BasicMotions/BasicMotions"
    train, test = real_file(f"{folder}_TRAIN.ts"), real_file(f"{folder}_TEST.ts")
    found = decoded(train, ".ts", test=test)
    assert found.x.shape == (80, 100, 6)
    assert found.facts.samples == {"train": 40, "test": 40}
    assert found.facts.classes == ("Badminton", "Running", "Standing", "Walking")
    assert found.y is not None
    for split in (0, 2):
        np.testing.assert_array_equal(np.bincount(found.y[found.split == split]), [10] * 4)


def test_japanese_vowels_are_read_padded() -> None:
    folder = "uea/JapaneseVowels/JapaneseVowels"
    train, test = real_file(f"{folder}_TRAIN.ts"), real_file(f"{folder}_TEST.ts")
    assert "steps" in refusal(train, ".ts")
    found = decoded(train, ".ts", options(unequal_lengths="pad"), test=test)
    assert found.x.shape == (640, 29, 12)
    assert (found.facts.shortest, found.facts.steps) == (7, 29)
    assert found.y is not None
    assert found.lengths is not None
    assert found.lengths[found.split == 0].max() == 26
    np.testing.assert_array_equal(np.bincount(found.y[found.split == 0]), [30] * 9)
    np.testing.assert_array_equal(
        np.bincount(found.y[found.split == 2]), [31, 35, 88, 44, 29, 24, 40, 50, 29]
    )
