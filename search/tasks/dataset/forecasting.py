"""Windows of long series, for predicting each next step from those before it."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.uploads.dataset_metadata import SPLIT_NAMES

_VALIDATION, _TEST = SPLIT_NAMES.index("validation"), SPLIT_NAMES.index("test")

Windows = Mapping[str, NDArray[np.float32]]
"""Windows `[N, window + 1, F]` by the split's name: steps that are read, and one to be foretold."""


def windows_of(
    series: NDArray[np.float32],
    lengths: Sequence[int],
    named: NDArray[np.int8],
    *,
    window: int,
    validation_share: float,
    test_share: float,
) -> Windows:
    """Cut series into windows of which no two predict the same step.

    A series that is named for validation or test belongs there whole. Any other is cut in time: its
    earliest steps train, then come those of validation, and the last ones test, so that nothing is
    learned from the future; a split that is named elsewhere takes none of them. No step is in two
    splits. Windows follow each other, each beginning where the one before predicts last; steps at
    an end that do not fill another one are left out.

    Args:
        series: `[N, T, F]`.
        lengths: steps of each series.
        named: `[N]`, the series' place in `SPLIT_NAMES`, or -1 for none.
        window: steps that a sample reads.
        validation_share: between 0 and 1, of the steps of each series that is cut.
        test_share: the same for the test part.

    Raises:
        DataError: a split holds no window.
    """
    parts: dict[str, list[NDArray[np.float32]]] = {name: [] for name in SPLIT_NAMES}
    longest: dict[str, int] = dict.fromkeys(SPLIT_NAMES, 0)
    validation = 0.0 if (named == _VALIDATION).any() else validation_share
    test = 0.0 if (named == _TEST).any() else test_share
    for row, steps in enumerate(lengths):
        ends = (round(steps * (1 - validation - test)), round(steps * (1 - test)))
        bounds = {
            _VALIDATION: ((0, 0), (0, steps), (0, 0)),
            _TEST: ((0, 0), (0, 0), (0, steps)),
        }.get(int(named[row]), ((0, ends[0]), ends, (ends[1], steps)))
        for name, (start, end) in zip(SPLIT_NAMES, bounds, strict=True):
            longest[name] = max(longest[name], end - start)
            parts[name] += [
                series[row, begin : begin + window + 1]
                for begin in range(start, end - window, window)
            ]
    least = min(longest, key=lambda name: longest[name])
    if longest[least] <= window:
        raise DataError(
            f"window {window}: {least} has {longest[least]} steps in a row; allowed is less than "
            f"that"
        )
    return {name: np.stack(windows) for name, windows in parts.items()}
