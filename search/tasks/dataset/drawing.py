"""Which samples train, validate and test, where nobody has said so."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.uploads.dataset_metadata import SPLIT_NAMES

Rows = Mapping[str, NDArray[np.int64]]
"""Numbers of samples, ascending, by the split's name."""

_TRAIN, _VALIDATION, _TEST = range(len(SPLIT_NAMES))


def drawn_rows(
    named: NDArray[np.int8],
    *,
    classes: NDArray[np.int64] | None,
    validation_share: float,
    test_share: float,
    seed: int,
) -> Rows:
    """Complete a division into three splits.

    The parts that are named stay as they are. A validation or test part that is not is drawn from
    the samples that are in neither: its share of them, one sample at least. With classes each
    gives about the same share, and one that has a single sample gives it to training.

    Args:
        named: `[N]`, the sample's place in `SPLIT_NAMES`, or -1 for none.
        classes: `[N]`, to be divided evenly; None draws without regard to anything.
        validation_share: between 0 and 1, of the samples that are drawn from.
        test_share: the same for the test part.
        seed: decides the draw, in all versions of numpy.

    Raises:
        DataError: nothing would be left to train on.
    """
    open_rows = np.flatnonzero((named == -1) | (named == _TRAIN))
    order = _evenly(open_rows, classes, np.random.RandomState(seed))
    rows: dict[str, NDArray[np.int64]] = {}
    taken = 0
    for place, share in ((_VALIDATION, validation_share), (_TEST, test_share)):
        found = np.flatnonzero(named == place)
        if len(found) == 0:
            wanted = max(1, round(share * len(order)))
            found = np.sort(order[taken : taken + wanted])
            taken += wanted
        rows[SPLIT_NAMES[place]] = found
    if taken >= len(order):
        raise DataError(
            f"{len(order)} samples are too few: {taken} of them go to validation and test, and "
            f"at least one has to be left for training"
        )
    return {"train": np.sort(order[taken:]), **rows}


def _evenly(
    rows: NDArray[np.int64], classes: NDArray[np.int64] | None, random: np.random.RandomState
) -> NDArray[np.int64]:
    """The rows in a random order, any piece of which has all classes in about equal shares.

    The k-th of a class's n samples stands at (k - 1/2) / n of the way: a class with few samples has
    none near the beginning, where validation and test are taken.
    """
    shuffled = rows[random.permutation(len(rows))]
    if classes is None:
        return shuffled
    place = np.empty(len(shuffled))
    for label in np.unique(classes[shuffled]):
        members = np.flatnonzero(classes[shuffled] == label)
        place[members] = (np.arange(len(members)) + 0.5) / len(members)
    return shuffled[np.argsort(place, kind="stable")]
