"""Numbers of 8 or 4 bits: how parameters are rounded to them, and what the bits are."""

from models.quantization.angles import Angles
from models.quantization.directions import Directions, PackedDirections
from models.quantization.matrices import Matrices, Rows
from models.quantization.rounding import (
    decode,
    encode,
    encoded,
    in_their_place,
    layouts,
    refuse_not_finite,
    round_,
    rounded_for_a_step,
    rounded_names,
    rounded_weights,
)
from models.quantization.scheme import Bits, Encoded, Layout, Quantised, Scheme

__all__ = [
    "Angles",
    "Bits",
    "Directions",
    "Encoded",
    "Layout",
    "Matrices",
    "PackedDirections",
    "Quantised",
    "Rows",
    "Scheme",
    "decode",
    "encode",
    "encoded",
    "in_their_place",
    "layouts",
    "refuse_not_finite",
    "round_",
    "rounded_for_a_step",
    "rounded_names",
    "rounded_weights",
]
