"""Studies of uploads that were stored before uploads told what missing values are replaced by."""

import hashlib
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from models.interface import Classes, FillMissing, Standardise
from search.tasks import Dataset, DataSources
from search.uploads import container
from tests.search.uploads.uploaded import FolderShelf, readings


def as_stored_before(content: bytes) -> bytes:
    """A container as earlier programs wrote it: its facts know nothing of replacements."""
    arrays = dict(np.load(io.BytesIO(content)))
    about = json.loads(arrays["about"].tobytes())
    del about["facts"]["replacements"], arrays["missing"]
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return out.getvalue()


@pytest.fixture
def sources(tmp_path: Path) -> DataSources:
    shelf = FolderShelf(tmp_path / "shelf")
    content = as_stored_before(container.to_bytes(readings()))
    (tmp_path / "shelf" / "old").write_bytes(content)
    return DataSources(cache=tmp_path / "cache", datasets=shelf)


def stored_task(sources: DataSources, tmp_path: Path) -> Dataset:
    """The document as an earlier program stored it, its facts in the form that they had then."""
    content = (tmp_path / "shelf" / "old").read_bytes()
    facts = Dataset(id="old").resolved(sources).facts
    assert facts is not None
    assert facts.inputs is not None
    document = {
        "kind": "dataset",
        "id": "old",
        "validation_share": 0.2,
        "test_share": 0.2,
        "split_seed": 0,
        "normalise": True,
        "window": 64,
        "facts": {
            "sha256": hashlib.sha256(content).hexdigest(),
            "problem": "classification",
            "samples": {"train": 36, "validation": 12, "test": 12},
            "steps": 10,
            "shortest": 10,
            "features": 1,
            "outputs": 2,
            "baseline": 0.5,
            "inputs": {
                "means": list(facts.inputs.means),
                "deviations": list(facts.inputs.deviations),
            },
            "targets": None,
        },
    }
    return Dataset.model_validate_json(json.dumps(document))


def test_a_study_stored_before_loads_and_has_an_interface_without_replacements(
    sources: DataSources, tmp_path: Path
) -> None:
    task = stored_task(sources, tmp_path)
    validation = task.load(sources).validation
    interface, raw = task.interface(sources), task.raw_samples(sources)
    assert [type(step) for step in interface.inputs] == [Standardise]
    # Which values were missing is not known any more: what they were replaced by is given.
    assert raw.x.isfinite().all()
    torch.testing.assert_close(interface.preprocess(raw.x), validation.x, rtol=1e-6, atol=1e-6)
    assert interface.answer == Classes(classes=("Grün, hell", 'das "Übrige"'))


def test_an_upload_of_today_tells_what_missing_values_are_replaced_by(tmp_path: Path) -> None:
    shelf = FolderShelf(tmp_path / "shelf")
    sources = DataSources(cache=tmp_path / "cache", datasets=shelf)
    decoded = readings()
    task = Dataset(id=shelf.add("new", decoded)).resolved(sources)
    fill, _ = task.interface(sources).inputs
    assert isinstance(fill, FillMissing)
    known = decoded.as_sent()
    assert fill.values[0] == pytest.approx(float(np.nanmean(known.astype(np.float64))), rel=1e-12)
    raw = task.raw_samples(sources)
    assert raw.x.isnan().any()
    assert int(np.isnan(known).sum()) == decoded.facts.missing_values == 20
