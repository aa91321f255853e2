"""Rounding a matrix to integers, each by itself or by what the columns to come can make up for."""

import numpy as np
from numpy.typing import NDArray

from models.graphs.fits.packing import StoredBits
from models.graphs.fits.second_moments import Double, SecondMoments, channel_rows, whole_columns
from models.graphs.fits.stored import Rounded, blocks_of
from models.graphs.layers import Matrix

_SMALLEST_SCALE, _LARGEST_SCALE = 1e-7, 65504.0
"""Within what float16 holds."""
_SHRINKS = tuple(float(share) for share in np.linspace(0.4, 1, 13))
"""Shares of the largest number of a block that its largest integer may stand for."""
_BLOCK = 64
"""Columns that are rounded before what they lost reaches those behind them."""


def rounded(
    matrix: Matrix,
    bits: StoredBits,
    group: int,
    moments: SecondMoments,
    *,
    compensated: bool = True,
    turned: bool = False,
) -> Rounded:
    """A matrix `[rows, columns]` of integers, with a scale for each `group` columns of a row.

    Below 8 bits, columns make up for what those before them lost (`compensated`), by the moments of
    what the matrix reads; a row to which that does harm is rounded number by number. With `turned`,
    the transposed matrix reads, and rows make up for rows.
    """
    reads = matrix.shape[0] if turned else matrix.shape[1]
    weights = np.ones((1, matrix.shape[1])) if turned else moments.diagonal.reshape(1, reads)
    scales = _scales(matrix, bits, blocks_of(matrix.shape[1], group), weights.astype(np.float32))
    spread = np.repeat(scales, matrix.shape[1] // scales.shape[1], axis=1)
    top = 2 ** (bits - 1) - 1
    integers = np.clip(np.rint(matrix / spread), -top, top).astype(np.int8)
    if compensated and bits < 8 and turned:
        integers = _best_rows(matrix.T, spread.T, integers.T, moments, top).T
    elif compensated and bits < 8:
        integers = _best_rows(matrix, spread, integers, moments, top)
    return Rounded(np.ascontiguousarray(integers), scales.astype(np.float16), bits)


def _best_rows(
    matrix: Matrix,
    spread: Matrix,
    plain: NDArray[np.int8],
    moments: SecondMoments,
    top: int,
) -> NDArray[np.int8]:
    """Of each row, the integers with compensation, unless those without lose less.

    Corrections may lead beyond the largest integer, where they are cut off.
    """
    upper = moments.compensation
    if upper is None:
        return plain
    repeat = moments.repeat
    if repeat > 1:
        by_place = channel_rows(matrix, repeat), channel_rows(spread, repeat)
        found = whole_columns(_compensated(*by_place, top, upper), repeat)
    else:
        found = _compensated(matrix, spread, top, upper)
    # `e C e - f C f` is `(e - f) C (e + f)`.
    apart = (found - plain) * spread
    more = moments.products(apart, (found + plain) * spread - 2 * matrix)
    return np.where((more <= 0)[:, None], found, plain)


def _scales(matrix: Matrix, bits: int, blocks: int, weights: Matrix) -> Matrix:
    """The scale of each block of a row `[rows, blocks]`, exact in float16.

    Below 8 bits the largest numbers may be cut off: of 13 scales the one with the least weighted
    squared error is taken.
    """
    rows, columns = matrix.shape
    values = matrix.reshape(rows, blocks, columns // blocks)
    by_block = weights.reshape(1, blocks, -1)
    top = 2 ** (bits - 1) - 1
    peaks = np.abs(values).max(-1, keepdims=True)
    best = _in_halves(peaks / top, up=True)
    if bits == 8:
        return best[..., 0]
    loss = np.full_like(best, np.inf)
    for share in _SHRINKS:
        scale = _in_halves(peaks * np.float32(share / top), up=share == 1)
        lost = np.clip(np.rint(values / scale), -top, top) * scale - values
        error = np.einsum("rbc,rbc,xbc->rb", lost, lost, by_block)[..., None]
        best = np.where(error < loss, scale, best)
        loss = np.minimum(loss, error)
    return best[..., 0]


def _in_halves(scale: Matrix, *, up: bool) -> Matrix:
    """Scales that float16 holds exactly; with `up` none is less than it was."""
    kept = np.clip(scale, _SMALLEST_SCALE, _LARGEST_SCALE)
    halves = kept.astype(np.float16)
    if up:
        with np.errstate(over="ignore"):
            above = np.nextafter(halves, np.float16(np.inf))
        halves = np.where((halves < kept) & np.isfinite(above), above, halves)
    return halves.astype(np.float32)


def _compensated(matrix: Matrix, spread: Matrix, top: int, upper: Double) -> NDArray[np.int8]:
    """Integers `[rows, columns]`, column by column, with lazy updates by blocks.

    What a column loses is spread over those behind it by the rows of U, the upper Cholesky factor
    of the inverse moments (Frantar et al., GPTQ, arXiv:2210.17323, algorithm 1). All rows are
    rounded at once.
    """
    columns = matrix.shape[1]
    # A copy in any case: what is rounded away is added to it.
    work = np.array(matrix.T, np.float32, order="C")
    scales = np.ascontiguousarray(spread.T, np.float32)
    integers = np.empty(work.shape, np.float32)
    shares = (upper / np.diagonal(upper)[:, None]).astype(np.float32)
    for start in range(0, columns, _BLOCK):
        stop = min(start + _BLOCK, columns)
        lost = np.empty((stop - start, work.shape[1]), np.float32)
        for column in range(start, stop):
            rounds = integers[column]
            np.divide(work[column], scales[column], out=rounds)
            np.rint(rounds, out=rounds)
            np.minimum(rounds, top, out=rounds)
            np.maximum(rounds, -top, out=rounds)
            left = lost[column - start]
            np.multiply(rounds, scales[column], out=left)
            np.subtract(work[column], left, out=left)
            work[column + 1 : stop] -= shares[column, column + 1 : stop, None] * left
        work[stop:] -= shares[start:stop, stop:].T @ lost
    return integers.T.astype(np.int8)
