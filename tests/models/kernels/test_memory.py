"""Memory that serves one step after the other."""

import gc

import pytest
import torch

from models.kernels import memory

SHAPE = (3, 700, 600)


@pytest.fixture(autouse=True)
def nothing_is_kept() -> None:
    gc.collect()
    memory._free.clear()


def test_what_nobody_holds_serves_the_next_one() -> None:
    first = memory.empty(SHAPE)
    address = first.data_ptr()
    assert first.shape == SHAPE
    assert first.is_contiguous()
    assert first._base is None
    del first
    assert memory.kept_bytes() >= 4 * 3 * 700 * 600
    assert memory.empty((700, 3, 600)).data_ptr() == address


def test_what_a_view_holds_is_not_given_away() -> None:
    first = memory.empty(SHAPE).fill_(1)
    view = first[1:, ::2]
    del first
    gc.collect()
    assert memory.kept_bytes() == 0
    memory.empty(SHAPE).fill_(2)
    assert view.min() == view.max() == 1


def test_small_ones_are_torchs_own_and_huge_ones_go_back_to_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert memory.empty((10, 10)).shape == (10, 10)
    assert memory.kept_bytes() == 0
    monkeypatch.setattr(memory, "_MOST_BYTES", 5 << 20)
    held = [memory.empty(SHAPE), memory.empty(SHAPE), memory.empty((10, *SHAPE))]
    held.clear()
    assert memory.kept_bytes() == 0


def test_no_more_is_kept_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_MOST_BYTES", 10 << 20)
    held = [memory.empty(SHAPE).fill_(number) for number in range(3)]
    assert [float(one.min()) for one in held] == [0, 1, 2]
    held.clear()
    assert 0 < memory.kept_bytes() <= 10 << 20


def test_a_much_larger_block_is_not_spent_on_little() -> None:
    large = memory.empty((10, *SHAPE))
    del large
    kept = memory.kept_bytes()
    small = memory.empty(SHAPE)
    assert small.shape == SHAPE
    assert memory.kept_bytes() == kept


def test_it_can_be_copied_and_differentiated() -> None:
    given = memory.empty(SHAPE).fill_(2).requires_grad_()
    given.square().sum().backward()
    assert given.grad is not None
    assert torch.equal(given.grad, torch.full(SHAPE, 4.0))
    assert torch.equal(given.detach().clone(), torch.full(SHAPE, 2.0))
