import numpy as np
import pytest

from models.graphs.fits import DiagonalMoments, FullMoments, SecondMoments, best_factors
from models.graphs.fits.factors import balanced
from tests.models.graphs.fits.test_roundings import correlated, normal

SHAPES = [(9, 31), (31, 9), (16, 16)]


def dense(moments: SecondMoments, size: int) -> np.ndarray:
    return moments.times(np.eye(size))


@pytest.mark.parametrize("shape", SHAPES)
def test_of_vectors_that_are_alike_the_best_factors_are_the_svd(shape: tuple[int, int]) -> None:
    matrix = normal(*shape).astype(np.float64)
    left, right = best_factors(matrix, DiagonalMoments.alike(shape[1]))
    u, s, v = np.linalg.svd(matrix, full_matrices=False)
    for rank in (1, 4, min(shape)):
        wanted = (u[:, :rank] * s[:rank]) @ v[:rank]
        assert np.allclose(left[:, :rank] @ right[:rank], wanted, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_loss_is_that_of_the_singular_values_left_out(shape: tuple[int, int]) -> None:
    """Eckart and Young, of the weighted matrix."""
    matrix, moments = normal(*shape).astype(np.float64), correlated(shape[1])
    root = np.linalg.cholesky(dense(moments, shape[1]))
    values = np.linalg.svd(matrix @ root, compute_uv=False)
    left, right = best_factors(matrix, moments)
    for rank in range(1, min(shape) + 1):
        found = moments.energy(matrix - left[:, :rank] @ right[:rank])
        # Energies are summed of products in single precision.
        assert found == pytest.approx((values[rank:] ** 2).sum(), rel=1e-5, abs=1e-5)


def test_moments_lose_less_than_the_plain_svd() -> None:
    matrix, moments = normal(20, 30).astype(np.float64), correlated(30)
    plain = best_factors(matrix, DiagonalMoments.alike(30))
    weighted = best_factors(matrix, moments)
    lost = [moments.energy(matrix - left[:, :6] @ right[:6]) for left, right in (plain, weighted)]
    assert lost[1] < 0.8 * lost[0]


def test_moments_of_channels_are_those_of_independent_places() -> None:
    channels = correlated(5)
    moments = FullMoments(dense(channels, 5), repeat=3)
    whole = np.kron(dense(moments, 15)[::3, ::3], np.eye(3))
    matrix = normal(4, 15).astype(np.float64)
    assert np.allclose(moments.times(matrix), matrix @ whole)
    assert np.allclose(moments.diagonal, np.diagonal(whole))
    twice = moments.times_root(moments.times_root(matrix))
    assert np.allclose(twice, matrix @ whole)
    assert np.allclose(moments.times_inverse_root(moments.times_root(matrix)), matrix)


def test_moments_of_single_numbers_are_a_diagonal() -> None:
    squares = np.arange(1.0, 8.0)
    moments = DiagonalMoments(squares)
    matrix = normal(3, 7).astype(np.float64)
    assert np.allclose(moments.times(matrix), matrix * (squares + 4e-5))
    assert np.allclose(moments.times_root(moments.times_root(matrix)), moments.times(matrix))
    assert np.allclose(moments.times_inverse_root(moments.times_root(matrix)), matrix)


@pytest.mark.parametrize("make", [FullMoments, lambda values: DiagonalMoments(np.diagonal(values))])
def test_what_was_never_read_counts_all_alike(make: type[FullMoments]) -> None:
    moments = make(np.zeros((6, 6)))
    assert np.allclose(dense(moments, 6), np.eye(6))


def test_balanced_factors_have_rows_of_length_one_and_the_same_product() -> None:
    left, right = normal(8, 3).astype(np.float64), normal(3, 9, 2).astype(np.float64)
    right[1] = 0
    made_left, made_right = balanced(left, right)
    assert np.allclose(made_left @ made_right, left @ right)
    assert np.linalg.norm(made_right, axis=1) == pytest.approx([1, 0, 1])
