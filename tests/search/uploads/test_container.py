import dataclasses
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from search.errors import DataError
from search.uploads import container
from search.uploads.container import Decoded
from search.uploads.dataset_metadata import DatasetFacts
from tests.search.uploads.upload_cases import decoded, mutations

CSV = b"a,1,2\nb,3,4\na,5,6\n"
FOUND = decoded(CSV, ".csv")
KEPT = container.to_bytes(FOUND)


def test_the_same_dataset_has_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert container.to_bytes(decoded(CSV, ".csv")) == KEPT
    with zipfile.ZipFile(io.BytesIO(KEPT)) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}


def test_it_is_read_from_a_path(tmp_path: Path) -> None:
    path = tmp_path / "container"
    path.write_bytes(KEPT)
    found = container.read(path)
    np.testing.assert_array_equal(found.x, FOUND.x)
    assert (found.facts, found.preview) == (FOUND.facts, FOUND.preview)
    with pytest.raises(DataError, match=r"nowhere cannot be read: No such file"):
        container.read(tmp_path / "nowhere")


def test_numpy_reads_it_too() -> None:
    with np.load(io.BytesIO(KEPT), allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["x"], FOUND.x)
        np.testing.assert_array_equal(arrays["y"], [0, 1, 0])


def test_a_preview_shows_each_class_where_files_hold_one_after_the_other() -> None:
    rows = "".join(f"{label},{step}\n" for label in "abc" for step in range(20)).encode()
    found = decoded(rows, ".csv").preview
    assert [sample.target for sample in found] == ["a", "a", "a", "b", "c"]
    assert [sample.values[0][0] for sample in found] == [0, 1, 2, 0, 0]


def test_a_preview_is_short() -> None:
    rows = b"".join(b"%d,%s\n" % (n % 2, b",".join([b"0.123456789"] * 300)) for n in range(20))
    preview = decoded(rows, ".csv").preview
    assert len(preview) == 5
    assert all(len(sample.values) == 100 for sample in preview)
    assert preview[0].steps == 300
    assert preview[0].values[0] == (0.123457,)


def _facts(**changed: Any) -> DatasetFacts:
    return FOUND.facts.model_copy(update=changed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"x": FOUND.x.astype(np.float64)}, "x of type float64"),
        ({"x": FOUND.x[:, :, 0]}, r"shape \(3, 2\); expected are float32 and \(3, 2, 1\)"),
        ({"y": np.array([0, 1, 2])}, "classes outside of 0 to 1"),
        ({"y": np.array([0.0, 1, 0], dtype=np.float32)}, "y of type float32"),
        ({"y": None}, "wrong about its targets: classification"),
        ({"lengths": np.array([1, 2, 3])}, "lengths outside of 1 to 2 steps"),
        ({"lengths": np.array([1, 2])}, "lengths of type int64"),
        ({"split": np.array([0, 1, 3], dtype=np.int8)}, "a split that there is not"),
        ({"facts": _facts(samples={"unassigned": 4})}, "x of type float32"),
        ({"facts": _facts(problem="forecasting")}, "wrong about its targets: forecasting"),
        ({"facts": _facts(problem="regression")}, "y of type int64"),
    ],
)
def test_a_container_that_contradicts_itself_is_refused(changed: dict, message: str) -> None:
    wrong: Decoded = dataclasses.replace(FOUND, **changed)
    with pytest.raises(DataError, match=message):
        container.read(io.BytesIO(container.to_bytes(wrong)))


def test_a_missing_array_and_wrong_words_are_refused() -> None:
    stream = io.BytesIO()
    np.savez(stream, x=FOUND.x, split=FOUND.split)
    with pytest.raises(DataError, match="lacks the array about"):
        container.read(stream)
    stream = io.BytesIO()
    np.savez(stream, x=FOUND.x, split=FOUND.split, about=np.frombuffer(b"{}", dtype=np.uint8))
    with pytest.raises(DataError, match="describes itself wrongly"):
        container.read(stream)


@settings(deadline=None, max_examples=60)
@given(content=mutations(KEPT))
def test_a_damaged_container_is_read_or_refused(content: bytes) -> None:
    try:
        found = container.read(io.BytesIO(content))
    except DataError:
        return
    container.verify(found)
