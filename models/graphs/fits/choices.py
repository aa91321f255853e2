"""The registry of choices: a new kind is a file, and a name in this union."""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from models.graphs.fits.corrected import Corrected
from models.graphs.fits.dense_bits import Dense
from models.graphs.fits.low_rank_factors import LowRank

_Variants: TypeAlias = Dense | LowRank | Corrected

AnyChoice: TypeAlias = Annotated[_Variants, Field(discriminator="kind")]
CHOICES: tuple[type[_Variants], ...] = get_args(_Variants)
