"""What is known of the vectors that a layer reads."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.graphs.fits.second_moments import SecondMoments


@dataclass(frozen=True, eq=False)
class Statistics:
    """Of calibration data, over all nodes that read a layer."""

    moments: tuple[SecondMoments, ...] | None = None
    """For each direction's matrix; None where nothing is known."""
    row_frequencies: NDArray[np.float64] | None = None
    """How often each row `[out]` of a table is looked up, as shares that sum to 1."""
    positions: float = 0.0
    """How often each matrix is applied in one run on a feed, on average."""
