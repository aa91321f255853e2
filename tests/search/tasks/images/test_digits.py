from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from sklearn.datasets import load_digits

from search.tasks import DataSources, Digits


@pytest.fixture
def sources(tmp_path: Path) -> DataSources:
    return DataSources(cache=tmp_path / "cache")


def test_the_splits_are_all_images_once_scaled_to_one(sources: DataSources) -> None:
    splits = Digits(layout="pixels").load(sources)
    assert splits.sizes == {"train": 997, "validation": 400, "test": 400}
    read = torch.cat([s.x for s in (splits.train, splits.validation, splits.test)]).squeeze(-1)
    labels = torch.cat([s.y for s in (splits.train, splits.validation, splits.test)])
    images, truth = load_digits(return_X_y=True)
    expected = {(*row, label) for row, label in zip(images.tolist(), truth.tolist(), strict=True)}
    found = {
        (*row, label) for row, label in zip((read * 16).tolist(), labels.tolist(), strict=True)
    }
    assert found == expected
    assert read.max() == 1.0


def test_rows_are_the_pixels_eight_at_a_time(sources: DataSources) -> None:
    rows, pixels = Digits(layout="rows").load(sources), Digits(layout="pixels").load(sources)
    assert rows.train.x.shape == (997, 8, 8)
    assert torch.equal(rows.train.x.reshape(997, 64), pixels.train.x.squeeze(-1))
    assert torch.equal(rows.train.y, pixels.train.y)


def test_train_samples_limits_training_alone(sources: DataSources) -> None:
    whole, some = Digits().load(sources), Digits(train_samples=100).load(sources)
    assert some.sizes == {"train": 100, "validation": 400, "test": 400}
    assert torch.equal(some.train.x, whole.train.x[:100])
    assert torch.equal(some.test.x, whole.test.x)


@pytest.mark.parametrize("samples", [0, 998])
def test_more_or_fewer_train_samples_than_there_are_is_refused(samples: int) -> None:
    with pytest.raises(ValidationError, match="train_samples"):
        Digits(train_samples=samples)
