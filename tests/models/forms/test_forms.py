import pytest
import torch
from torch import Tensor

from models.forms import BiasedForm, DenseForm, Form, LowRankForm, MaskedForm

MATRICES, SIZE, RANK, BATCH = 12, 5, 2, 3


def random(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator).requires_grad_()


def stacks() -> dict[str, tuple[list[Tensor], Form]]:
    """Each form with the tensors that it is made of."""
    weight = random(MATRICES, SIZE, SIZE, seed=0)
    left = random(MATRICES, SIZE, RANK, seed=1)
    diagonal = random(MATRICES, SIZE, seed=2)
    num_right = {shared: random(MATRICES // shared, RANK, SIZE, seed=3) for shared in (1, 3, 6, 12)}
    mask = random(MATRICES, BATCH, SIZE, seed=4)
    return {
        "dense": ([weight], DenseForm(weight)),
        "low_rank": ([left, num_right[1]], LowRankForm(left, num_right[1])),
        **{
            f"shared_by_{shared}": (
                [left, right, diagonal],
                LowRankForm(left, right, diagonal),
            )
            for shared, right in num_right.items()
        },
        "masked": ([weight, mask], MaskedForm(DenseForm(weight), mask)),
        "masked_alike": ([weight, mask], MaskedForm(DenseForm(weight), mask[:1])),
        "biased": ([weight, diagonal], BiasedForm(DenseForm(weight), diagonal)),
    }


@pytest.mark.parametrize("size", [1, 3, 6, 12])
@pytest.mark.parametrize("form", stacks())
def test_parts_of_a_split_are_what_select_gives(form: str, size: int) -> None:
    made_of, factors = stacks()[form]
    x = random(BATCH, SIZE, seed=5)

    def outputs(parts: list[Form]) -> tuple[list[Tensor], list[Tensor | None]]:
        # Every part gets a weight of its own, so that swapped parts would give other gradients.
        result = [torch.stack(part.matmul(x)) * (i + 1) for i, part in enumerate(parts)]
        total = torch.stack([part.square().sum() for part in result]).sum()
        return result, list(torch.autograd.grad(total, made_of, allow_unused=True))

    selected = [factors.select(i, i + size) for i in range(0, MATRICES, size)]
    torch.testing.assert_close(outputs(list(factors.split(size))), outputs(selected))


@pytest.mark.parametrize("form", stacks())
def test_a_bias_is_added_once_however_products_are_asked_for(form: str) -> None:
    _, inner = stacks()[form]
    bias, x = random(MATRICES, SIZE, seed=6), random(BATCH, SIZE, seed=7)
    projections = random(1, BATCH, MATRICES * SIZE, seed=8)
    added = projections[0].unflatten(-1, (MATRICES, SIZE)).transpose(0, 1)
    own = inner.bias()
    alone = torch.stack(inner.matmul(x)) + bias.unsqueeze(1)
    biased = BiasedForm(inner, bias)
    (addend,) = biased.addends(projections)
    each = x.expand(MATRICES, BATCH, SIZE)
    for asked in (biased, biased.rebuild(biased.tensors()), biased.for_loop()):
        torch.testing.assert_close(torch.stack(asked.matmul(x)), alone)
        torch.testing.assert_close(torch.stack(asked.matmul(x, addend)), alone + added)
        torch.testing.assert_close(torch.stack(asked.matmul_each(each, added)), alone + added)
        torch.testing.assert_close(torch.stack(asked.matmul_each(each, x.new_zeros(()))), alone)
    assert biased.bias() is bias
    assert own is None or form == "biased"
    assert biased.structure() != inner.structure()
    assert (biased.name, biased.multiply_adds()) == (inner.name, inner.multiply_adds())
