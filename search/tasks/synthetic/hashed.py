"""Random numbers that are a function of a seed, a row and a column, whatever is drawn beside them.

SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014, with
the constants of Vigna's splitmix64.c) gives a generator's k-th word as a hash of its seed and k.
Here the seed's generator seeds one generator per row, whose words are the row's columns.
The values are frozen: runs of different versions are compared by them.
"""

import numpy as np
from numpy.typing import NDArray

_INCREMENT = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)


def words(seed: int, rows: NDArray[np.int64], columns: int) -> NDArray[np.uint64]:
    """Give 64 random bits per row and column.

    Args:
        seed: 0 to 2^64 - 1; streams of different seeds are independent.
        rows: `[B]`, not negative; a row's words depend on the seed and its number alone.
        columns: how many words per row; fewer are the beginning of more.

    Returns:
        `[B, columns]`.
    """
    rows_seed = _word(np.array([seed], np.uint64), np.zeros(1, np.uint64))
    row_seeds = _word(rows_seed, rows.astype(np.uint64))
    return _word(row_seeds[:, None], np.arange(columns, dtype=np.uint64))


def uniform(bits: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Map words to multiples of 2^-24 in [0, 1): all of them have a float32 of their own."""
    return (bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)


def below(bits: NDArray[np.uint64], bound: int) -> NDArray[np.int64]:
    """Map words to 0 .. bound - 1, for a bound of at most 2^32.

    The bound scales a word's upper half, which favours no number by more than bound / 2^32 of its
    share (Lemire: Fast Random Integer Generation in an Interval, 2019, without the rejection).
    """
    return (((bits >> _HALF) * np.uint64(bound)) >> _HALF).astype(np.int64)


def _word(seeds: NDArray[np.uint64], numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Word `number`, counted from 0, of the generator that begins with a seed; broadcasts."""
    # Arrays of unsigned integers wrap around modulo 2^64, as the algorithm wants it.
    state = seeds + (numbers + np.uint64(1)) * _INCREMENT
    state = (state ^ (state >> np.uint64(30))) * _FIRST_FACTOR
    state = (state ^ (state >> np.uint64(27))) * _SECOND_FACTOR
    return state ^ (state >> np.uint64(31))
