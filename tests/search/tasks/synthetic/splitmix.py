"""SplitMix64 one number at a time, in Python's own integers."""

from collections.abc import Iterator

WORD = 2**64


def splitmix64(seed: int) -> Iterator[int]:
    """As in Vigna's splitmix64.c, from prng.di.unimi.it."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) % WORD
        yield mixed(seed)


def mixed(state: int) -> int:
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB % WORD
    return state ^ (state >> 31)


def nth(seed: int, number: int) -> int:
    """Word `number` from 0: the state grows by the same amount with each."""
    return next(splitmix64((seed + number * 0x9E3779B97F4A7C15) % WORD))


def reference_word(seed: int, row: int, column: int) -> int:
    return nth(nth(nth(seed, 0), row), column)
