"""Handwritten digits that come with scikit-learn: small, real, nothing to download."""

from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from models.interface import Divide, Interface, Layout
from models.spec import Signature
from search.tasks.array_cache import Arrays, cached_arrays
from search.tasks.classification import (
    ARRAY_NAMES,
    TEN_CLASSES,
    TenClasses,
    as_sequences,
    split_arrays,
)
from search.tasks.raw_samples import RawSamples, first_batch
from search.tasks.samples import EVALUATION_ROWS, Split, Splits
from search.tasks.sources import DataSources, DownloadProgress

_IMAGES, _TRAIN, _VALIDATION = 1797, 997, 400
_SPLIT_SEED = 0
_PIXELS, _WHITE = 64, 16
_STEPS = {"rows": 8, "pixels": 64}


class Digits(TenClasses):
    """1,797 images of 8x8 pixels in ten classes.

    They are split 997 / 400 / 400 by a fixed permutation (seed 0), and pixels are scaled from 0..16
    to 0..1. The metric is accuracy; its baseline, 0.1, is guessing one of ten classes at random.
    """

    title: ClassVar[str] = "Handwritten digits, 8x8"
    evaluation_rows: ClassVar[int] = EVALUATION_ROWS
    paper: ClassVar[str] = (
        "Alpaydin, Kaynak: Optical Recognition of Handwritten Digits, UCI repository, 1998"
    )

    kind: Literal["digits"] = "digits"
    layout: Literal["rows", "pixels"] = Field(
        default="rows", description="rows: 8 steps of 8 pixels; pixels: 64 steps of one, row by row"
    )
    train_samples: int | None = Field(
        default=None,
        ge=1,
        le=_TRAIN,
        description="train on this many images only, for quick studies; null: all",
    )

    def signature(self) -> Signature:
        """The layout's steps, and ten classes after the last."""
        steps = _STEPS[self.layout]
        return Signature(input_size=_PIXELS // steps, sequence_length=steps, output_size=10)

    def data_bytes(self) -> int:
        """All images, and their classes."""
        return _IMAGES * (_PIXELS * 4 + 8)

    @property
    def validation_samples(self) -> int:
        """Images that quality is measured on."""
        return _VALIDATION

    def load(
        self,
        sources: DataSources,
        *,
        progress: DownloadProgress | None = None,  # noqa: ARG002 -- nothing is downloaded
    ) -> Splits[Split]:
        """Read the images: from scikit-learn the first time, from the cache afterwards."""
        arrays = cached_arrays(sources.cache / "digits-1", ARRAY_NAMES, _decode)
        return as_sequences(arrays, steps=_STEPS[self.layout], train_samples=self.train_samples)

    def interface(self, sources: DataSources) -> Interface:  # noqa: ARG002 -- no file is read
        """Pixels of 0..16, row by row."""
        signature = self.signature()
        return Interface(
            sample=(_PIXELS,),
            inputs=(
                Divide(by=_WHITE),
                Layout(steps=signature.sequence_length, features=signature.input_size),
            ),
            answer=TEN_CLASSES,
            metric=self.metric.name,
        )

    def raw_samples(self, sources: DataSources) -> RawSamples:
        """Pixels of 0..16, row by row."""
        batch = first_batch(self.load(sources).validation, numbers=_PIXELS)
        return RawSamples((batch.x * _WHITE).flatten(1), batch.y).fitting()


def _decode() -> Arrays:
    # Importing scikit-learn for one file would take a second, and 70 MB for as long as a process
    # lives.
    package = find_spec("sklearn")
    assert package is not None
    assert package.submodule_search_locations is not None
    file = Path(package.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    table = np.loadtxt(file, delimiter=",")
    images, labels = table[:, :-1], table[:, -1].astype(int)
    # RandomState's streams are frozen; a Generator's may change with numpy's version.
    order = np.random.RandomState(_SPLIT_SEED).permutation(len(labels))
    rows = {
        "train": order[:_TRAIN],
        "validation": order[_TRAIN : _TRAIN + _VALIDATION],
        "test": order[_TRAIN + _VALIDATION :],
    }
    return split_arrays(images / _WHITE, labels, rows)
