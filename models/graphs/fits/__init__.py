"""What may be stored in place of a layer's matrices, and what is lost by it.

`statistics_of` sees what the layers read of calibration data; a `LayerFitter` fits one `Choice` of
the registry `CHOICES` after another to a layer.
"""

from models.graphs.fits.calibration import Feed, statistics_of
from models.graphs.fits.choice import Choice, Part
from models.graphs.fits.choices import CHOICES, AnyChoice
from models.graphs.fits.corrected import Corrected
from models.graphs.fits.dense_bits import Dense
from models.graphs.fits.factors import best_factors
from models.graphs.fits.fitting import Fit, LayerFitter, local_error
from models.graphs.fits.low_rank_factors import LowRank
from models.graphs.fits.packing import packed_bytes
from models.graphs.fits.second_moments import DiagonalMoments, FullMoments, SecondMoments
from models.graphs.fits.statistics import Statistics
from models.graphs.fits.stored import Floats, Rounded, Stored

__all__ = [
    "CHOICES",
    "AnyChoice",
    "Choice",
    "Corrected",
    "Dense",
    "DiagonalMoments",
    "Feed",
    "Fit",
    "Floats",
    "FullMoments",
    "LayerFitter",
    "LowRank",
    "Part",
    "Rounded",
    "SecondMoments",
    "Statistics",
    "Stored",
    "best_factors",
    "local_error",
    "packed_bytes",
    "statistics_of",
]
