"""Reflectors of given matrices: the staircase of a QR decomposition, and the best few of them.

A stack of staircase reflectors is `rows` `[G, m, n]` with j leading zeros in row j, as in
`models.math.householder`; here a zero row is the identity and the 1 x 1 reflector a row like
others. All is in double precision.
"""

import torch
from torch import Tensor

from models.errors import ConversionError
from models.math.householder import (
    apply_inverse_triangle,
    rows_of_length_root_two,
    staircase_positions,
)
from models.math.linalg import symmetric_eigen
from models.parametrizations.parts.staircase import Staircase

NEGLIGIBLE = 1e-9
"""Below this share of its column, what is left to reflect away is rounding noise."""


def reflect(rows: Tensor, matrix: Tensor) -> Tensor:
    """`H(y_0) H(y_1) ... H(y_{m-1}) X` for a stack of rows `[G, m, n]` and X `[G, n, k]`."""
    scaled = rows_of_length_root_two(rows)
    inner = apply_inverse_triangle(scaled, scaled @ matrix, transposed=False)
    return torch.baddbmm(matrix, scaled.mT, inner, alpha=-1)


def reflect_back(rows: Tensor, matrix: Tensor) -> Tensor:
    """`H(y_{m-1}) ... H(y_1) H(y_0) X`, the transposed product."""
    scaled = rows_of_length_root_two(rows)
    inner = apply_inverse_triangle(scaled, scaled @ matrix, transposed=True)
    return torch.baddbmm(matrix, scaled.mT, inner, alpha=-1)


def reflector_of(x: Tensor) -> Tensor:
    """The unit u `[G, k]` with `H(u) x = |x| e_1` for x `[G, k]`; 0 where x is on the axis already.

    Which side of 0 the first entry is on decides the form that does not cancel. Where the rest of
    x is negligible a reflector of it would flip a direction that rounding chose: u is 0 or e_1.
    """
    largest = x.abs().amax(-1, keepdim=True)
    x = x / largest.masked_fill(largest == 0, 1)
    first, rest = x[:, :1], x[:, 1:]
    square = rest.square().sum(-1, keepdim=True)
    length = (first.square() + square).sqrt()
    start = torch.where(
        first <= 0, first - length, -square / (first + length).clamp_min(torch.finfo(x.dtype).tiny)
    )
    u = torch.cat((start, rest), -1)
    on_axis = square.sqrt() <= NEGLIGIBLE * length
    flip = torch.zeros_like(u)
    flip[:, 0] = (first[:, 0] < 0).to(x.dtype)
    u = torch.where(on_axis, flip, u)
    size = u.square().sum(-1, keepdim=True).sqrt()
    return u / size.masked_fill(size == 0, 1)


def staircase_of(columns: Tensor, count: int) -> Tensor:
    """Rows `[G, count, n]` whose product has the first `count` of orthonormal columns `[G, n, k]`.

    That is Householder's QR decomposition with a positive diagonal of R, which then is I. Of a
    product of m staircase reflectors the first m columns give all of it back.
    """
    num_matrices, size, _ = columns.shape
    rows = columns.new_zeros(num_matrices, count, size)
    left = columns[..., :count].clone()
    for j in range(count):
        u = reflector_of(left[:, j:, j])
        rows[:, j, j:] = u
        tail = left[:, j:, j:]
        tail.baddbmm_(u.unsqueeze(-1), u.unsqueeze(-2) @ tail, alpha=-2)
    return rows


def reduced_staircase(vectors: Tensor, count: int) -> Tensor:
    """A product of k <= count reflections of any vectors `[k, n]` as a staircase `[count, n]`.

    Every step leaves a product Q of one reflection less, in which one more coordinate stands still:
    `H(Q w - w) Q` keeps w and what Q kept. Where the coordinate whose turn it is stands still
    already, w is the one that moves furthest.
    """
    size = vectors.shape[-1]
    rows = vectors.new_zeros(count, size)
    left = product_of(vectors.unsqueeze(0))[0]
    identity = torch.eye(size, dtype=vectors.dtype)
    for j in range(count):
        moves = (left - identity)[j:, j:].square().sum(0).sqrt()
        w = j if moves[0] > NEGLIGIBLE else j + int(moves.argmax())
        if moves[w - j] <= NEGLIGIBLE:
            break
        u = (
            reflector_of(left[j:, j].unsqueeze(0))[0]
            if w == j
            else (left - identity)[j:, w] / moves[w - j]
        )
        rows[j, j:] = u
        left[j:] -= 2 * torch.outer(u, u @ left[j:])
    return rows


def product_of(rows: Tensor) -> Tensor:
    """`H(y_0) H(y_1) ... H(y_{m-1})` `[G, n, n]` for any rows `[G, m, n]`."""
    num_matrices, _, size = rows.shape
    identity = torch.eye(size, dtype=rows.dtype).expand(num_matrices, size, size)
    return reflect(rows, identity) if rows.shape[-2] else identity.clone()


def rows_of(staircase: Staircase) -> Tensor:
    """All rows of a module, in double precision; its sign buffer as a 1 x 1 reflector."""
    rows = staircase.rows().detach().double()
    if staircase.sign is None:
        return rows
    last = torch.zeros(rows.shape[0], 1, staircase.size, dtype=rows.dtype)
    last[:, 0, -1] = (staircase.sign < 0).to(rows.dtype)
    return torch.cat((rows, last), -2)


def padded(rows: Tensor, count: int) -> Tensor:
    """The same product with `count` rows, of which the last ones are zero.

    Raises:
        ConversionError: there are more rows already.
    """
    if rows.shape[-2] > count:
        raise ConversionError(
            f"the earlier solution has {rows.shape[-2]} reflectors; allowed are at most {count}"
        )
    return torch.nn.functional.pad(rows, (0, 0, 0, count - rows.shape[-2]))


@torch.no_grad()
def write_rows_(staircase: Staircase, rows: Tensor) -> None:
    """Store rows `[G, m, n]` in a module, in place; its product becomes theirs.

    Rows that are zero would never learn (their gradient is 0). Two of them in a row are stored as
    a reflector and the same one again, which is the identity too.
    """
    rows = rows.clone()
    zero = (rows == 0).all(-1)
    for j in range(1, staircase.count):
        pair = zero[:, j - 1] & zero[:, j]
        idle = torch.zeros(staircase.size, dtype=rows.dtype)
        idle[j:] = (staircase.size - j) ** -0.5
        rows[pair, j - 1 : j + 1] = idle
        zero[pair, j - 1 : j + 1] = False
    positions = staircase_positions(staircase.size, staircase.count)
    staircase.entries.copy_(rows[:, : staircase.count].flatten(1)[:, positions])
    if staircase.sign is not None:
        staircase.sign.copy_(torch.where(rows[:, -1, -1] != 0, -1.0, 1.0))


def sweep_(rows: Tensor, matrix: Tensor) -> None:
    """Turn every row once to the best there is with the others as they are, in place.

    Rows have length 1 or are 0. Best is what makes `tr(X Q)` largest for the product Q and
    X = `matrix` `[G, n, n]`, and with it Q nearest to X^T. With `X Q = X A H(u) B` that is the
    eigenvector of the smallest eigenvalue of `C = B X A`, made symmetric, among the vectors that
    the staircase allows; u = 0 if none is negative.
    """
    count = rows.shape[-2]
    c = reflect(rows[:, 1:], matrix) if count > 1 else matrix.clone()
    for j in range(count):
        if j > 0:
            _reflect_rows_(c, rows[:, j])
        block = c[:, j:, j:]
        values, vectors = symmetric_eigen(block + block.mT)
        u = torch.where(values[:, :1] < 0, vectors[..., 0], torch.zeros_like(vectors[..., 0]))
        rows[:, j, j:] = u
        c -= 2 * (c @ rows[:, j].unsqueeze(-1)) * rows[:, j].unsqueeze(-2)


def _reflect_rows_(matrix: Tensor, row: Tensor) -> None:
    """`H(y) X` in place, for y of length 1 or 0."""
    matrix.baddbmm_(row.unsqueeze(-1), row.unsqueeze(-2) @ matrix, alpha=-2)
