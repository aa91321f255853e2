import io
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from search.errors import DataError
from search.formats import zipped_arrays
from tests.search.uploads.upload_cases import (
    MOST_BYTES,
    OPTIONS,
    decoded,
    mutations,
    npz_bytes,
    options,
    refusal,
    result_or_refusal,
)

X = np.arange(24, dtype=np.float64).reshape(4, 3, 2)
Y = np.array([0, 1, 1, 0])
GOOD = npz_bytes({"x": X, "y": Y})


def _zip(entries: list[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", compression) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return stream.getvalue()


def _npy(descr: str, shape: str, content: bytes = b"", fortran: str = "False") -> bytes:
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "x",
    [X, X.astype(">f4"), X.astype(np.int8), np.asfortranarray(X), X.astype(np.float16)],
    ids=["f8", "big-endian", "int8", "Fortran", "f2"],
)
def test_numbers_of_any_type_become_float32(x: np.ndarray, packed: bool) -> None:
    found = decoded(npz_bytes({"x": x, "y": Y}, packed=packed), ".npz")
    np.testing.assert_array_equal(found.x, X)
    assert found.x.dtype == np.float32
    assert found.facts.samples == {"unassigned": 4}


def test_two_axes_are_samples_and_steps() -> None:
    found = decoded(npz_bytes({"x": X[:, :, 0], "y": Y}), ".npz")
    np.testing.assert_array_equal(found.x, X[:, :, :1])


@pytest.mark.parametrize(
    ("y", "problem", "outputs", "classes"),
    [
        (np.array([3, -1, 3, 7]), "classification", 3, ("-1", "3", "7")),
        (np.array([3.0, 1.0, 3.0, 1.0]), "classification", 2, ("1", "3")),
        (np.array([[3], [1], [3], [1]]), "classification", 2, ("1", "3")),
        (np.array(["b", "a", "b", "ä"]), "classification", 3, ("a", "b", "ä")),
        (np.array([b"b", b"a", b"b", b"b"]), "classification", 2, ("a", "b")),
        (np.array([True, False, True, True]), "classification", 2, ("0", "1")),
        (np.array([2**60, 2**60 + 1] * 2), "classification", 2, (str(2**60), str(2**60 + 1))),
        (np.array([0.5, 1, 2, 3]), "regression", 1, None),
        (np.array([[0, 2], [1, 1], [0, 0], [3, 4]]), "regression", 2, None),
        (np.array([[0, 1, 1], [1, 1, 0], [0, 0, 0], [1, 0, 0]]), "multilabel", 3, tuple("012")),
    ],
)
def test_the_problem_is_what_the_targets_look_like(
    y: np.ndarray, problem: str, outputs: int, classes: tuple[str, ...] | None
) -> None:
    facts = decoded(npz_bytes({"x": X, "y": y}), ".npz").facts
    assert (facts.problem, facts.outputs, facts.classes) == (problem, outputs, classes)


def test_labels_are_counted() -> None:
    y = np.array([[0, 1, 1], [1, 1, 0], [0, 0, 0], [1, 0, 0]])
    found = decoded(npz_bytes({"x": X, "y": y}), ".npz")
    assert found.facts.class_counts == (2, 2, 1)
    assert [sample.target for sample in found.preview] == [("1", "2"), ("0", "1"), (), ("0",)]


def test_rows_with_a_single_one_are_classes_if_wished() -> None:
    y = np.eye(3)[[2, 0, 1, 2]]
    found = decoded(npz_bytes({"x": X, "y": y}), ".npz", options(problem="classification"))
    np.testing.assert_array_equal(found.y, [2, 0, 1, 2])


@pytest.mark.parametrize("split", [["train", "test", "validation", "train"], [0, 2, 1, 0]])
def test_splits_are_named_or_numbered(split: list) -> None:
    found = decoded(npz_bytes({"x": X, "y": Y, "split": np.array(split)}), ".npz")
    np.testing.assert_array_equal(found.split, [0, 2, 1, 0])
    assert found.facts.samples == {"train": 2, "validation": 1, "test": 1}


def test_parts_by_split_are_joined() -> None:
    parts = {"x_train": X, "y_train": Y, "x_test": X[:2, ::-1], "y_test": Y[:2]}
    found = decoded(npz_bytes(parts), ".npz")
    np.testing.assert_array_equal(found.split, [0, 0, 0, 0, 2, 2])
    np.testing.assert_array_equal(found.x, np.concatenate([X, X[:2, ::-1]]))


def test_given_lengths_mask_whatever_stands_behind_them() -> None:
    x = X.copy()
    x[1, 1:] = np.nan
    found = decoded(npz_bytes({"x": x, "y": Y, "lengths": np.array([2, 1, 2, 2])}), ".npz")
    assert found.lengths is not None
    np.testing.assert_array_equal(found.lengths, [2, 1, 2, 2])
    assert found.x.shape == (4, 2, 2)
    assert not found.x[1, 1:].any()


@pytest.mark.parametrize(
    ("x", "shape"), [(X[0, :, 0], (1, 3, 1)), (X[0], (1, 3, 2)), (X, (4, 3, 2))]
)
def test_series_without_targets_are_forecast(x: np.ndarray, shape: tuple[int, ...]) -> None:
    found = decoded(npz_bytes({"x": x}), ".npz")
    assert (found.facts.problem, found.x.shape, found.y) == ("forecasting", shape, None)


def test_a_missing_value_becomes_its_features_mean_over_the_training_samples() -> None:
    x = X.copy()
    x[3, 2, 1] = np.nan
    arrays = npz_bytes({"x": x, "y": Y, "split": np.array([0, 0, 2, 2])})
    assert "1 values are missing, the first in sample 3, step 2, feature 1" in refusal(
        arrays, ".npz"
    )
    found = decoded(arrays, ".npz", options(missing="mean"))
    assert found.x[3, 2, 1] == X[:2, :, 1].mean()
    assert found.facts.missing_values == 1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X, "y": Y, "z": Y}, "holds 'z.npy'; allowed are the keys x, y, split, lengths"),
        ({"y": Y}, "the key x is missing"),
        ({"x": X, "y": Y, "x_test": X}, "the keys x and x_test do not go together"),
        ({"x_train": X, "y_train": Y}, "the key x_test is missing"),
        (
            {"x_train": X, "y_train": Y, "x_test": X, "y_test": Y, "y_validation": Y},
            "y_validation is there and x_validation is not",
        ),
        ({"x_train": X, "y_train": Y, "x_test": X}, "targets are missing in one of them"),
        (
            {"x_train": X, "y_train": Y, "x_test": X[:, :, :1], "y_test": Y},
            "2 features and 1 features",
        ),
        ({"x": X, "y": Y[:3]}, "x has 4 samples and y has 3"),
        ({"x": X[0, :, 0], "y": Y[:3]}, "x has the shape (3,)"),
        ({"x": X, "y": Y.reshape(4, 1, 1)}, "y has the shape (4, 1, 1)"),
        ({"x": X[:0], "y": Y[:0]}, "none may be 0"),
        ({"x": X.reshape(4, 3, 2, 1), "y": Y}, "1 to 3 dimensions are read"),
        ({"x": X.astype(complex), "y": Y}, "elements of type '<c16'"),
        ({"x": X.astype(str), "y": Y}, "x has elements of type <U32; numbers are needed"),
        ({"x": X.astype("M8[s]"), "y": Y}, "elements of type '<M8[s]'"),
        ({"x": np.where(X == 5, np.inf, X), "y": Y}, "sample 0, step 2, feature 1 (from 0) is inf"),
        (
            {"x": np.where(X == 5, np.inf, X), "y": Y, "lengths": np.array([3, 1, 1, 1])},
            "sample 0, step 2, feature 1 (from 0) is inf",
        ),
        ({"x": X * 1e39, "y": Y}, "beyond single precision"),
        ({"x": X, "y": np.array([0, 1, np.nan, 1])}, "sample 2 (from 0) has no target"),
        ({"x": X, "y": np.array([0.5, 1, 1e39, 1])}, "sample 2 (from 0) has a target that is"),
        ({"x": X, "y": Y * 0}, "all 4 samples are of one class, '0'"),
        ({"x": X, "y": np.arange(4)}, "each of the 4 samples is of a class of its own"),
        ({"x": X, "y": Y, "split": np.array([0, 3, 0, 0])}, "3 of sample 1"),
        ({"x": X, "y": Y, "split": np.array(["train", "rest", "test", "test"])}, "of sample 1"),
        ({"x": X, "y": Y, "split": np.array([2, 2, 2, 2])}, "no sample is of the split train"),
        ({"x": X, "y": Y, "lengths": np.array([1, 4, 1, 1])}, "4 of sample 1 (from 0) is outside"),
        ({"x": X, "y": Y, "lengths": np.array([1.0, 1, 1, 1])}, "lengths has type float64"),
    ],
)
def test_arrays_that_do_not_fit_are_named(arrays: dict, message: str) -> None:
    assert message in refusal(npz_bytes(arrays), ".npz")


def test_pickles_are_refused_by_their_header_alone() -> None:
    objects = np.empty(4, dtype=object)
    for arrays in ({"x": X, "y": objects}, {"x": objects, "y": Y}):
        assert "holds Python objects (pickles), which are not read" in refusal(
            npz_bytes(arrays), ".npz"
        )
    structured = np.zeros(4, dtype=[("a", "f4"), ("b", "O")])
    assert "elements of type [('a', '<f4'), ('b', '|O')]" in refusal(
        npz_bytes({"x": X, "y": structured}), ".npz"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "damaged: File is not a zip file"),
        (_zip([]), "the .npz archive is empty"),
        (_zip([("../x.npy", _npy("'<f4'", "(1,)", b"1234"))]), "holds '../x.npy'"),
        (_zip([("a/x.npy", b"")]), "holds 'a/x.npy'"),
        (_zip([("x", b"")]), "holds 'x'"),
        (_zip([("x.npy", b"")], zipfile.ZIP_BZIP2), "packed by another method"),
        (_zip([("x.npy", b"no magic")]), "the array x is no .npy file"),
        (_zip([("x.npy", b"\x93NUMPY\x03\x00" + b"\xff" * 8)]), "a header of 4294967295 bytes"),
        (_zip([("x.npy", _npy("__import__('os')", "(1,)"))]), "has a damaged header"),
        (_zip([("x.npy", _npy("'<f4'", "(2,)", b"1234"))]), "4 bytes of elements; its header ann"),
        (_zip([("x.npy", _npy("'<f4'", "(10**9,)"))]), "has a damaged header"),
        (_zip([("x.npy", _npy("'<f4'", "(99999999999999999999,)"))]), "0 bytes of elements"),
        (_zip([("x.npy", _npy("'<U999999999'", "(1,)"))]), "unknown type"),
        (_zip([("x.npy", _npy("'<f3'", "(1,)", b"123"))]), "unknown type"),
        (GOOD[:-30], "damaged"),
        (GOOD.replace(X.tobytes(), X.tobytes()[::-1], 1), "damaged: Bad CRC-32"),
    ],
)
def test_damage_and_tricks_are_refused(content: bytes, message: str) -> None:
    assert message in refusal(content, ".npz")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_key_that_stands_twice_is_refused() -> None:
    entry = ("x.npy", _npy("'<f4'", "(1,)", b"1234"))
    assert "holds the key x twice" in refusal(_zip([entry, entry]), ".npz")


def test_a_string_that_is_no_unicode_is_refused() -> None:
    content = struct.pack("<4I", 97, 0x110000, 97, 98)
    y = ("y.npy", _npy("'<U1'", "(4,)", content))
    x = ("x.npy", _npy("'|u1'", "(4, 1)", b"1234"))
    assert "y holds strings that are no Unicode" in refusal(_zip([x, y]), ".npz")
    words = np.array([b"a", b"\xff", b"a", b"a"])
    assert "words that are no text" in refusal(npz_bytes({"x": X, "y": words}), ".npz")


def test_an_encrypted_array_is_refused() -> None:
    content = bytearray(_zip([("x.npy", b"1234")]))
    directory = content.index(b"PK\x01\x02")
    content[directory + 8] |= 1
    assert "the array x is encrypted" in refusal(bytes(content), ".npz")


def test_a_bomb_is_refused_by_its_directory() -> None:
    zeros = np.zeros((2, 2**21, 2), dtype=np.float32)
    bomb = io.BytesIO(npz_bytes({"x": zeros}, packed=True))
    with pytest.raises(DataError, match="taken for a zip bomb"):
        zipped_arrays.read(bomb, allowed=("x",), most_bytes=2**30)
    assert f"at most {MOST_BYTES}" in refusal(npz_bytes({"x": zeros}), ".npz")


def test_a_directory_that_lies_about_the_size_ends_at_what_it_announced() -> None:
    content = bytearray(
        _zip([("x.npy", _npy("'|u1'", "(9,)", b"1" * 2**20))], zipfile.ZIP_DEFLATED)
    )
    directory = content.index(b"PK\x01\x02")
    header_bytes = len(_npy("'|u1'", "(9,)"))
    content[directory + 24 : directory + 28] = struct.pack("<I", header_bytes + 9)
    assert "damaged" in refusal(bytes(content), ".npz")


def test_reading_never_holds_more_than_was_allowed() -> None:
    with pytest.raises(DataError, match="at most 100"):
        zipped_arrays.read(io.BytesIO(GOOD), allowed=("x", "y"), most_bytes=100)


@settings(deadline=None, max_examples=80)
@given(
    content=st.one_of(
        st.binary(max_size=200), mutations(GOOD), mutations(npz_bytes({"x": X}, packed=True))
    ),
    chosen=OPTIONS,
)
def test_any_bytes_are_read_or_refused(content: bytes, chosen) -> None:
    result_or_refusal(content, ".npz", chosen)


_DESCR = st.sampled_from(["'<f4'", "'|O'", "'<i8'", "'<U1'", "'|S2'", "'?'", "'>f2'", "'<f16'"])
_SHAPE = st.sampled_from(["()", "(2,)", "(2, 2)", "(1, 2, 1)", "(0,)", "(2, 1, 1, 1)", "(-1,)"])


@settings(deadline=None, max_examples=80)
@given(
    arrays=st.dictionaries(
        st.sampled_from(["x", "y", "split", "lengths", "x_train", "y_train", "x_test", "y_test"]),
        st.tuples(_DESCR, _SHAPE, st.binary(max_size=40), st.sampled_from(["True", "False"])),
        max_size=4,
    ),
    chosen=OPTIONS,
)
def test_any_arrays_of_bytes_are_read_or_refused(arrays: dict, chosen) -> None:
    entries = [(f"{name}.npy", _npy(d, s, b, f)) for name, (d, s, b, f) in arrays.items()]
    result_or_refusal(_zip(entries), ".npz", chosen)


_ARRAYS = hnp.arrays(
    st.one_of(
        hnp.floating_dtypes(),
        hnp.integer_dtypes(),
        hnp.boolean_dtypes(),
        hnp.unicode_string_dtypes(max_len=3),
    ),
    hnp.array_shapes(min_dims=1, max_dims=3, max_side=3),
)


@settings(deadline=None, max_examples=80)
@given(x=_ARRAYS, y=st.one_of(st.none(), _ARRAYS), chosen=OPTIONS)
def test_any_arrays_are_read_or_refused(x: np.ndarray, y: np.ndarray | None, chosen) -> None:
    arrays = {"x": x} if y is None else {"x": x, "y": y}
    result_or_refusal(npz_bytes(arrays), ".npz", chosen)


@settings(deadline=None, max_examples=40)
@given(
    x=hnp.arrays(
        np.float32,
        st.tuples(st.integers(2, 6), st.integers(1, 4), st.integers(1, 3)),
        elements=st.floats(width=32, allow_nan=False, allow_infinity=False),
    ),
    packed=st.booleans(),
)
def test_what_was_written_is_read(x: np.ndarray, packed: bool) -> None:
    y = np.arange(len(x)) % 2
    found = decoded(npz_bytes({"x": x, "y": y}, packed=packed), ".npz")
    np.testing.assert_array_equal(found.x, x)
    np.testing.assert_array_equal(found.y, y)


@pytest.mark.parametrize("padding", [np.nan, np.inf, -np.inf, 7.0])
def test_padding_may_be_anything(padding: float) -> None:
    lengths = np.array([1, 2, 3, 1])
    behind = np.arange(3) >= lengths[:, np.newaxis]
    x = np.where(behind[..., np.newaxis], padding, X)
    read = decoded(npz_bytes({"x": x, "y": Y, "lengths": lengths}), ".npz")
    np.testing.assert_array_equal(read.x[behind], 0)
    np.testing.assert_array_equal(read.x[~behind], X[~behind])
