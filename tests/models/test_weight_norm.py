import pytest
import torch

from models.hooks import Projected
from models.math.weight_norm import LONGEST_ROW, NormalisedRows, plain_rows, unit_rows


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_with_gain_the_start_is_kept_and_without_it_its_directions() -> None:
    start = random(2, 4, 3)
    with_gain, without = NormalisedRows(start, gain=True), NormalisedRows(start, gain=False)
    torch.testing.assert_close(with_gain(), start)
    torch.testing.assert_close(without(), torch.nn.functional.normalize(start, dim=-1))
    assert with_gain.gain is not None
    assert with_gain.gain.shape == (2, 4)
    assert without.gain is None
    assert [name for name, _ in without.named_parameters()] == ["direction"]


def test_gradient_is_that_of_gain_and_direction() -> None:
    rows = NormalisedRows(random(2, 4, 3), gain=True)
    assert rows.gain is not None

    def weight(direction: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(rows, {"direction": direction, "gain": gain}, ())

    assert torch.autograd.gradcheck(weight, (rows.direction, rows.gain))
    upstream = random(2, 4, 3, seed=1)
    (rows() * upstream).sum().backward()
    assert rows.direction.grad is not None
    radial = (rows.direction.grad * rows.direction).sum(-1)
    torch.testing.assert_close(radial, torch.zeros(2, 4, dtype=torch.float64), atol=1e-14, rtol=0)


def test_raw_rows_are_cut_to_length_ten_and_their_matrix_stays() -> None:
    lengths = torch.tensor([0.0, 0.5, 9.99, 10.0, 11.0, 1e6], dtype=torch.float64)
    rows = NormalisedRows(torch.nn.functional.normalize(random(6, 3), dim=-1), gain=True)
    assert isinstance(rows, Projected)
    with torch.no_grad():
        rows.direction.mul_(lengths.unsqueeze(-1))
    before = rows().detach().clone()
    rows.project_()
    torch.testing.assert_close(rows.direction.norm(dim=-1), lengths.clamp(max=LONGEST_ROW))
    torch.testing.assert_close(rows(), before, atol=1e-14, rtol=0)


@pytest.mark.parametrize("length", [1e-30, 1e-10, 1e10, 1e25])
def test_no_length_is_too_short_or_too_long(length: float) -> None:
    unit = torch.nn.functional.normalize(random(4, 3), dim=-1).float()
    rows = NormalisedRows(unit * length, gain=False)
    torch.testing.assert_close(rows(), unit)
    upstream = random(4, 3, seed=1).float()
    (rows() * upstream).sum().backward()
    gradient = rows.direction.grad
    assert gradient is not None
    tangent = upstream - unit * (unit * upstream).sum(-1, keepdim=True)
    torch.testing.assert_close(gradient * length, tangent, atol=1e-5, rtol=1e-5)
    rows.project_()
    torch.testing.assert_close(rows(), unit)
    assert rows.direction.norm(dim=-1).max() < LONGEST_ROW * 1.0001


def test_a_zero_row_stays_zero_without_nan() -> None:
    start = random(3, 4)
    start[1] = 0
    rows = NormalisedRows(start, gain=True)
    assert torch.equal(rows()[1], torch.zeros(4, dtype=torch.float64))
    rows().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in rows.parameters())
    rows.project_()
    assert torch.equal(rows.direction[1], torch.zeros(4, dtype=torch.float64))


def test_half_precision_rows_are_normalised_in_single_precision() -> None:
    rows = NormalisedRows(random(8, 500), gain=True).bfloat16()
    weight = rows()
    assert weight.dtype == torch.bfloat16
    assert rows.gain is not None
    exact = unit_rows(rows.direction.double()) * rows.gain.double().unsqueeze(-1)
    torch.testing.assert_close(weight.double(), exact, atol=0, rtol=2**-8)


def test_matrices_that_are_kept_plainly_are_handed_on() -> None:
    plain = random(2, 3)
    assert plain_rows(plain) is plain
    torch.testing.assert_close(plain_rows(NormalisedRows(plain, gain=True)), plain)
