"""Users' files, parsed by their formats and decided upon by the reading options."""

from collections.abc import Mapping, Sequence
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.formats.gzipped import unpacked
from search.formats.parquet import as_csv
from search.uploads import npz, table, targets, ts
from search.uploads.container import Decoded
from search.uploads.dataset_metadata import (
    SPLIT_NAMES,
    DatasetFacts,
    ReadingOptions,
    SamplePreview,
)
from search.uploads.raw import UNASSIGNED, Columns, RawDataset, Reader, joined


def _unpacking(reader: Reader) -> Reader:
    """A parser of the same files, packed by gzip; its limit counts what comes out."""

    def read(
        stream: BinaryIO, options: ReadingOptions, most_bytes: int, columns: Columns | None
    ) -> RawDataset:
        with unpacked(stream, most_bytes) as text:
            return reader(text, options, most_bytes, columns)

    return read


def _read_parquet(
    stream: BinaryIO, options: ReadingOptions, most_bytes: int, columns: Columns | None
) -> RawDataset:
    text = as_csv(stream, most_bytes)
    return table.read_csv(text, options, most_bytes, columns, names_first=True)


READERS: Mapping[str, Reader] = {
    ".npz": npz.read,
    ".csv": table.read_csv,
    ".tsv": table.read_tsv,
    ".ts": ts.read,
    ".csv.gz": _unpacking(table.read_csv),
    ".tsv.gz": _unpacking(table.read_tsv),
    ".ts.gz": _unpacking(ts.read),
    ".parquet": _read_parquet,
}
"""Parsers by the suffix of their files, in small letters."""

PREVIEW_SAMPLES = 5
PREVIEW_STEPS = 100
PREVIEW_FEATURES = 8
PREVIEW_TARGETS = 20


def decode(
    files: Mapping[str, BinaryIO], *, suffix: str, options: ReadingOptions, most_bytes: int
) -> Decoded:
    """Read a file, or a training file and a test file of the same format.

    Args:
        files: `file`, and `test` where there is an official test part; seekable.
        suffix: a key of `READERS`.
        options: how to read.
        most_bytes: that the samples may take as float32.

    Raises:
        DataError: A file cannot be read; the message says where and why.
    """
    reader = READERS[suffix]
    raw = reader(files["file"], options, most_bytes, None)
    if "test" in files:
        test = _read_test(reader, files["test"], options, most_bytes, raw.columns)
        raw = _with_test(raw, test, most_bytes)
    return decoded(raw, options)


def _read_test(
    reader: Reader,
    stream: BinaryIO,
    options: ReadingOptions,
    most_bytes: int,
    columns: Columns | None,
) -> RawDataset:
    try:
        return reader(stream, options, most_bytes, columns)
    except DataError as error:
        raise DataError(f"in the test file: {error}") from error


def _with_test(train: RawDataset, test: RawDataset, most_bytes: int) -> RawDataset:
    parts: list[RawDataset] = []
    for name, raw in (("train", train), ("test", test)):
        if (raw.split != UNASSIGNED).any():
            raise DataError("a file that names splits itself cannot come with a test file")
        split = np.full_like(raw.split, SPLIT_NAMES.index(name))
        parts.append(
            RawDataset(raw.x, raw.lengths, raw.targets, split, raw.problem, raw.lengths_given)
        )
    return joined(parts, most_bytes)


def decoded(raw: RawDataset, options: ReadingOptions) -> Decoded:
    """Decide about what was parsed: problem, classes, lengths and missing values.

    A class of a single sample is allowed, though a split that is drawn cannot show it everywhere.
    Series of forecasting may differ in length whatever the options say: they are cut into windows.

    Raises:
        DataError: The options refuse what is there.
    """
    problem, found = targets.read(raw, options.problem)
    shortest, steps = int(raw.lengths.min()), int(raw.lengths.max())
    ragged = shortest < raw.x.shape[1]
    if (
        shortest < steps
        and options.unequal_lengths == "refuse"
        and not raw.lengths_given
        and problem != "forecasting"
    ):
        raise DataError(
            f"the series have from {shortest} to {steps} steps (the first of {shortest} is sample "
            f'{int(raw.lengths.argmin())}, from 0); unequal lengths need unequal_lengths: "pad"'
        )
    assigned = bool((raw.split != UNASSIGNED).any())
    if assigned and not (raw.split == SPLIT_NAMES.index("train")).any():
        raise DataError("no sample is of the split train")
    # Sizes are those of the longest sample, also where an author padded further.
    x = raw.x[:, :steps]
    missing, replacements = _fill(x, raw, options, only_train=assigned)
    facts = DatasetFacts(
        problem=problem,
        samples=_sizes(raw.split),
        steps=steps,
        shortest=shortest,
        features=x.shape[2],
        outputs=found.outputs,
        classes=found.classes,
        class_counts=found.class_counts,
        missing_values=len(missing),
        replacements=replacements,
    )
    lengths = raw.lengths if ragged and shortest < steps else None
    return Decoded(
        x=x,
        y=found.y,
        lengths=lengths,
        split=raw.split,
        facts=facts,
        preview=_preview(x, raw, found),
        missing=missing if len(missing) else None,
    )


def _sizes(split: NDArray[np.int8]) -> dict[str, int]:
    names = {UNASSIGNED: "unassigned", **dict(enumerate(SPLIT_NAMES))}
    counts = {name: int((split == number).sum()) for number, name in names.items()}
    return {name: count for name, count in counts.items() if count}


def _fill(
    x: NDArray[np.float32], raw: RawDataset, options: ReadingOptions, *, only_train: bool
) -> tuple[NDArray[np.int64], tuple[float, ...] | None]:
    """Replace missing values in place by their feature's mean.

    Returns:
        Their places in the flat x; and each feature's mean, for values that will be missing in what
        the model reads later. None where missing values are refused.
    """
    missing = np.isnan(x)
    places = np.flatnonzero(missing)
    if options.missing == "refuse":
        if len(places):
            sample, step, feature = np.unravel_index(int(places[0]), x.shape)
            raise DataError(
                f"{len(places)} values are missing, the first in sample {sample}, step {step}, "
                f'feature {feature} (from 0); missing values need missing: "mean"'
            )
        return places, None
    known = ~missing
    # Padding is no value; without it the mean would be drawn towards 0.
    known &= (np.arange(x.shape[1], dtype=np.int64) < raw.lengths[:, np.newaxis])[:, :, np.newaxis]
    if only_train:
        known &= (raw.split == SPLIT_NAMES.index("train"))[:, np.newaxis, np.newaxis]
    means: list[float] = []
    for feature in range(x.shape[2]):
        values = x[:, :, feature][known[:, :, feature]]
        if not len(values):
            where = "the training samples" if only_train else "all samples"
            raise DataError(f"feature {feature} (from 0) is missing in {where}; it has no mean")
        means.append(float(values.mean(dtype=np.float64)))
        x[:, :, feature][missing[:, :, feature]] = means[-1]
    return places, tuple(means)


def _preview(
    x: NDArray[np.float32], raw: RawDataset, found: targets.ReadTargets
) -> tuple[SamplePreview, ...]:
    previews: list[SamplePreview] = []
    for index in _shown(found, len(x)):
        steps, split = int(raw.lengths[index]), int(raw.split[index])
        shown = x[index, : min(steps, PREVIEW_STEPS), :PREVIEW_FEATURES]
        previews.append(
            SamplePreview(
                split=None if split == UNASSIGNED else SPLIT_NAMES[split],
                steps=steps,
                values=tuple(_rounded(row.tolist()) for row in shown),
                target=_shown_target(found, index),
            )
        )
    return tuple(previews)


def _shown(found: targets.ReadTargets, count: int) -> list[int]:
    """The first sample of each class, for files often hold one class after the other; or the first.

    What room is left over goes to the first of the others, and all are in their own order.
    """
    order: list[int] = list(range(min(count, PREVIEW_SAMPLES)))
    if found.y is not None and found.classes is not None and found.y.ndim == 1:
        firsts: list[int] = np.unique(found.y, return_index=True)[1].tolist()
        order = [*sorted(firsts), *(index for index in order if index not in firsts)]
    return sorted(order[:PREVIEW_SAMPLES])


def _shown_target(
    found: targets.ReadTargets, index: int
) -> str | tuple[float, ...] | tuple[str, ...] | None:
    if found.y is None:
        return None
    target = found.y[index]
    if found.classes is None:
        return _rounded(target[:PREVIEW_TARGETS].tolist())
    if found.y.ndim == 1:
        return found.classes[int(target)]
    chosen: list[int] = np.flatnonzero(target)[:PREVIEW_TARGETS].tolist()
    return tuple(found.classes[label] for label in chosen)


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
