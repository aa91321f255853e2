"""MNIST from its four idx files, local or downloaded."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator

from models.interface import Divide, Interface, Layout, Reorder
from models.spec import Signature
from search.errors import DataError
from search.formats import idx
from search.tasks.array_cache import Arrays, cached_arrays
from search.tasks.classification import (
    ARRAY_NAMES,
    TEN_CLASSES,
    TenClasses,
    as_sequences,
    split_arrays,
)
from search.tasks.download import fetch, sha256_of
from search.tasks.raw_samples import RawSamples, first_batch
from search.tasks.samples import EVALUATION_ROWS, Split, Splits
from search.tasks.sources import DataSources, DownloadProgress, Mirror

OFFICIAL_CHECKSUMS = {
    "train-images-idx3-ubyte.gz": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "train-labels-idx1-ubyte.gz": (
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
    ),
    "t10k-labels-idx1-ubyte.gz": (
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"
    ),
}
"""SHA-256 of the four historical files."""

PUBLIC_MIRROR = Mirror("https://storage.googleapis.com/cvdf-datasets/mnist/", OFFICIAL_CHECKSUMS)

_SIDE = 28
_PIXELS = _SIDE * _SIDE
_CLASSES = 10
_WHITE = 255
_IMAGES = 70_000
_SPLIT_SEED = 0
_STEPS = {"rows": 28, "pixels": 784, "392x2": 392, "112x7": 112, "permuted": 784}
_TRAIN_SHARE = 6  # one of so many training images is set aside for validation: 10,000 of 60,000


def _is_usual(split: object) -> bool:
    """Whether documents leave it out: those of earlier studies stay what they were."""
    return split == "50k"


class Mnist(TenClasses):
    """MNIST's 28x28 images in ten classes, 50,000 / 10,000 / 10,000 unless `split` says otherwise.

    Validation is cut from the training files by a fixed permutation (seed 0); test is the official
    test files. Smaller files in the same format are split in the same proportion. Pixels are scaled
    from 0..255 to 0..1. The metric is accuracy; its baseline, 0.1, is guessing one of ten classes
    at random.
    """

    title: ClassVar[str] = "MNIST handwritten digits, 28x28"
    evaluation_rows: ClassVar[int] = EVALUATION_ROWS
    paper: ClassVar[str] = (
        "LeCun, Bottou, Bengio, Haffner: "
        "Gradient-Based Learning Applied to Document Recognition, 1998"
    )

    kind: Literal["mnist"] = "mnist"
    layout: Literal["rows", "pixels", "392x2", "112x7", "permuted"] = Field(
        default="rows",
        description="steps x features: rows 28x28, pixels 784x1, 392x2, 112x7; "
        "permuted: 784x1 in one shuffled order",
    )
    permutation_seed: int = Field(
        default=0,
        ge=0,
        lt=2**32,
        description="layout permuted: numpy's RandomState(seed).permutation(784)",
    )
    split: Literal["50k", "60k"] = Field(
        default="50k",
        exclude_if=_is_usual,
        description="50k: 10,000 images of the training files choose epochs and trials. 60k: all "
        "are trained on, those 10,000 too, so that nothing can be chosen: the last epoch is kept, "
        "rates and epochs come from a study of 50k, and studies that search are refused",
    )
    train_samples: int | None = Field(
        default=None,
        ge=1,
        le=50_000,
        description="train on this many images only, for quick studies; null: all",
    )

    @model_validator(mode="after")
    def _seed_has_a_use(self) -> Self:
        if self.permutation_seed != 0 and self.layout != "permuted":
            raise ValueError(
                f"permutation_seed {self.permutation_seed} has no meaning in layout "
                f"{self.layout!r}; it goes with layout 'permuted'"
            )
        return self

    def signature(self) -> Signature:
        """The layout's steps, and ten classes after the last."""
        steps = _STEPS[self.layout]
        return Signature(input_size=_PIXELS // steps, sequence_length=steps, output_size=_CLASSES)

    @property
    def holds_validation_out(self) -> bool:
        """Whether the validation images are not trained on."""
        return self.split == "50k"

    @property
    def validation_samples(self) -> int:
        """Images that quality is measured on."""
        return 60_000 // _TRAIN_SHARE

    def data_bytes(self) -> int:
        """All images, and their classes; with a copy of those that are joined."""
        copied = 0 if self.holds_validation_out else _IMAGES
        return (_IMAGES + copied) * (_PIXELS * 4 + 8)

    def load(
        self, sources: DataSources, *, progress: DownloadProgress | None = None
    ) -> Splits[Split]:
        """Read the images from `sources.folder`, or download them where none of the files is there.

        Raises:
            DataError: A file is missing, damaged or could not be fetched, or holds too few images.
        """
        files = _local_files(sources.folder) or _downloaded_files(sources, progress)
        order = self._pixel_order()
        arrays = cached_arrays(
            sources.cache / f"mnist-{_digest(files, order)}",
            ARRAY_NAMES,
            lambda: _decode(files, order),
        )
        if not self.holds_validation_out:
            arrays = _joined(arrays)
        available = len(arrays["train_x"])
        if self.train_samples is not None and self.train_samples > available:
            raise DataError(
                f"train_samples is {self.train_samples}, but {files['train-images']} leaves "
                f"{available} images for training"
            )
        splits = as_sequences(arrays, steps=_STEPS[self.layout], train_samples=self.train_samples)
        return replace(splits, chooses=self.holds_validation_out)

    def interface(self, sources: DataSources) -> Interface:  # noqa: ARG002 -- no file is read
        """Pixels of 0..255, row by row."""
        signature = self.signature()
        order = tuple(self._pixel_order().tolist())
        return Interface(
            sample=(_PIXELS,),
            inputs=(
                *((Reorder(order=order),) if self.layout == "permuted" else ()),
                Divide(by=_WHITE),
                Layout(steps=signature.sequence_length, features=signature.input_size),
            ),
            answer=TEN_CLASSES,
            metric=self.metric.name,
        )

    def raw_samples(self, sources: DataSources) -> RawSamples:
        """Pixels of 0..255, row by row."""
        batch = first_batch(self.load(sources).validation, numbers=_PIXELS)
        pixels = torch.empty(len(batch.y), _PIXELS)
        # Each quotient lies next to one whole multiple of 1 / 255.
        pixels[:, self._pixel_order()] = (batch.x.flatten(1) * _WHITE).round()
        return RawSamples(pixels, batch.y).fitting()

    def _pixel_order(self) -> NDArray[Any]:
        if self.layout != "permuted":
            return np.arange(_PIXELS)
        return np.random.RandomState(self.permutation_seed).permutation(_PIXELS)


_PARTS = {
    "train-images": "train-images-idx3-ubyte",
    "train-labels": "train-labels-idx1-ubyte",
    "test-images": "t10k-images-idx3-ubyte",
    "test-labels": "t10k-labels-idx1-ubyte",
}


def _local_files(folder: Path | None) -> dict[str, Path] | None:
    """Give the four files of a folder or of its `mnist` subfolder; None where none is there."""
    if folder is None:
        return None
    if not folder.is_dir():
        raise DataError(f"the data folder {folder} does not exist")
    for place in (folder, folder / "mnist"):
        found = {
            part: path
            for part, name in _PARTS.items()
            for path in (place / name, place / f"{name}.gz")
            if path.is_file()
        }
        missing = [f"{_PARTS[part]}[.gz]" for part in _PARTS if part not in found]
        if found and missing:
            raise DataError(f"{place} holds a part of MNIST, but not {', '.join(missing)}")
        if found:
            return found
    return None


def _downloaded_files(sources: DataSources, progress: DownloadProgress | None) -> dict[str, Path]:
    mirror = sources.mirrors.get("mnist", PUBLIC_MIRROR)
    checksums = mirror.checksums or OFFICIAL_CHECKSUMS
    paths = fetch(checksums, sources.cache / "mnist-files", url=mirror.url, progress=progress)
    return {part: paths[f"{name}.gz"] for part, name in _PARTS.items()}


def _digest(files: dict[str, Path], order: NDArray[Any]) -> str:
    """Name what the cached arrays follow from: the four files and the order of the pixels."""
    digest = hashlib.sha256(order.astype("int32").tobytes())
    for part in _PARTS:
        digest.update(sha256_of(files[part]).encode())
    return digest.hexdigest()[:32]


def _decode(files: dict[str, Path], order: NDArray[Any]) -> Arrays:
    train_images, train_labels = _read_pair(files["train-images"], files["train-labels"])
    test_images, test_labels = _read_pair(files["test-images"], files["test-labels"])
    validation = len(train_labels) // _TRAIN_SHARE
    if validation == 0:
        raise DataError(
            f"{files['train-images']} holds {len(train_labels)} images; "
            f"at least {_TRAIN_SHARE} are needed"
        )
    # RandomState's streams are frozen; a Generator's may change with numpy's version.
    shuffled = np.random.RandomState(_SPLIT_SEED).permutation(len(train_labels))
    rows = {"train": shuffled[validation:], "validation": shuffled[:validation]}
    return {
        **split_arrays(_scaled(train_images, order), train_labels, rows),
        **split_arrays(
            _scaled(test_images, order), test_labels, {"test": np.arange(len(test_labels))}
        ),
    }


def _joined(arrays: Arrays) -> Arrays:
    """The same with validation among what is trained on."""
    both = {
        f"train_{part}": np.concatenate([arrays[f"train_{part}"], arrays[f"validation_{part}"]])
        for part in ("x", "y")
    }
    return {**arrays, **both}


def _scaled(images: NDArray[Any], order: NDArray[Any]) -> NDArray[Any]:
    flat = images.reshape(len(images), _PIXELS)[:, order]
    return flat.astype("float32") / np.float32(_WHITE)


def _read_pair(image_file: Path, label_file: Path) -> tuple[NDArray[Any], NDArray[Any]]:
    images, labels = idx.read(image_file, dimensions=3), idx.read(label_file, dimensions=1)
    if images.shape[1:] != (_SIDE, _SIDE):
        height, width = images.shape[1:]
        raise DataError(
            f"{image_file} holds images of {height}x{width} pixels; expected are {_SIDE}x{_SIDE}"
        )
    if len(images) != len(labels):
        raise DataError(
            f"{label_file} holds {len(labels)} labels, but {image_file} holds {len(images)} images"
        )
    if len(labels) == 0:
        raise DataError(f"{image_file} holds no images")
    largest = int(labels.argmax())
    if labels[largest] >= _CLASSES:
        raise DataError(
            f"{label_file}: label {largest} is {labels[largest]}; expected are 0 to {_CLASSES - 1}"
        )
    return images, labels
