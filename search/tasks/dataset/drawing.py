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
    gives about the same share, and at least one of its samples stays in training where it can.

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
    wanted = {
        place: max(1, round(share * len(order)))
        for place, share in ((_VALIDATION, validation_share), (_TEST, test_share))
        if not (named == place).any()
    }
    held_out = sum(wanted.values())
    if held_out >= len(order):
        raise DataError(
            f"{len(order)} samples are too few: {held_out} of them go to validation and test, and "
            f"at least one has to be left for training"
        )
    if classes is not None:
        order = _training_on_all(order, classes, held_out)
    rows: dict[str, NDArray[np.int64]] = {}
    taken = 0
    for place in (_VALIDATION, _TEST):
        found = np.flatnonzero(named == place)
        if place in wanted:
            found = np.sort(order[taken : taken + wanted[place]])
            taken += wanted[place]
        rows[SPLIT_NAMES[place]] = found
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


def _training_on_all(
    order: NDArray[np.int64], classes: NDArray[np.int64], held_out: int
) -> NDArray[np.int64]:
    """The same order, but with a sample of each class behind the first `held_out` ones.

    A class that has none there changes its last one for one of the class that has most of them.
    Nothing changes where no class is missing: studies are stored with the division that they have.
    """
    order = order.copy()
    labels = np.unique(classes[order], return_inverse=True)[1]
    counts = np.bincount(labels[held_out:], minlength=labels.max() + 1)
    for label in np.flatnonzero(counts == 0):
        largest = counts.argmax()
        if counts[largest] == 1:
            break
        given = held_out + np.flatnonzero(labels[held_out:] == largest)[0]
        pair = [np.flatnonzero(labels == label)[-1], given]
        order[pair], labels[pair] = order[pair[::-1]], labels[pair[::-1]]
        counts[label], counts[largest] = 1, counts[largest] - 1
    return order
