"""Steps of many members at once against torch's optimizers, each member with one of its own."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from models.kernels.library import library
from models.kernels.optimizer import MOMENTS, MemberRates, gradient_norms, update_
from models.kernels.structs import OPTIMIZERS, OptimizerName

needs_kernels = pytest.mark.skipif(library() is None, reason="no C++ compiler here")

SHAPES = [(3, 5, 7), (17,), (), (1, 4097), (64, 129), (0, 3)]
"""Less and more than a vector and a block, a number alone, and none."""
MEMBERS = 5
SCALES = torch.ones(len(SHAPES), MEMBERS, dtype=torch.float64)
"""Of parameters and members."""
SCALES[2], SCALES[4, 1:] = 0.5, 0.01
WITHOUT = math.inf

# Roundings of 6e-8 each: some per step, of which a difference in the norm is one.
TOLERANCE = 2e-6

MAKERS: dict[OptimizerName, Callable[[list[dict[str, object]]], torch.optim.Optimizer]] = {
    "adam": lambda groups: torch.optim.Adam(groups, fused=True),
    "rmsprop": lambda groups: torch.optim.RMSprop(groups, alpha=0.9),
    "adagrad": lambda groups: torch.optim.Adagrad(groups, fused=True),
    "sgd": lambda groups: torch.optim.SGD(groups, fused=True),
}


def reals(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


RATES = MemberRates(
    learning_rate=reals(1e-2, 1e-3, 1e-1, 3e-3, 2e-2),
    weight_decay=reals(0, 0.1, 0, 0.01, 1.0),
    clip_value=reals(WITHOUT, 0.5, WITHOUT, 1.0, 0.01),
    clip_norm=reals(WITHOUT, WITHOUT, 1.0, 2.0, 1e6),
    recovery=reals(0.1, torch.nan, 0.3, torch.nan, 0.1),
)


def drawn(generator: torch.Generator, members: int = MEMBERS) -> list[Tensor]:
    """Of some members or parameters in the middle of the shapes' scale."""
    return [torch.randn(members, *shape, generator=generator) for shape in SHAPES]


@dataclass
class Members:
    """All that a step reads and changes."""

    optimizer: OptimizerName
    parameters: list[Tensor]
    moments: list[list[Tensor]]
    steps: Tensor
    rates: MemberRates
    scales: Tensor

    @classmethod
    def of(cls, optimizer: OptimizerName, parameters: Sequence[Tensor]) -> "Members":
        """At the first step."""
        return cls(
            optimizer,
            [one.clone() for one in parameters],
            [[torch.zeros_like(p) for p in parameters] for _ in range(MOMENTS[optimizer])],
            torch.zeros(len(parameters), len(parameters[0]), dtype=torch.int64),
            RATES,
            SCALES,
        )

    def step(self, gradients: Sequence[Tensor], lost: Sequence[int] = ()) -> Tensor:
        """Norms, of which some members' losses leave none, and an update by them."""
        norms = gradient_norms(gradients, self.rates.clip_value)
        norms[[*lost]] = torch.nan
        update_(
            self.optimizer,
            self.parameters,
            gradients,
            self.moments,
            steps=self.steps,
            norms=norms,
            rates=self.rates,
            scales=self.scales,
        )
        return norms

    def numbers(self) -> list[Tensor]:
        return [*self.parameters, *(one for kept in self.moments for one in kept), self.steps]


class Alone:
    """One member with torch's optimizer, as a trial of its own trains."""

    def __init__(self, optimizer: OptimizerName, parameters: Sequence[Tensor], member: int) -> None:
        self.rates = {name: float(one[member]) for name, one in vars(RATES).items()}
        self.parameters = [nn.Parameter(one[member].clone()) for one in parameters]
        self.optimizer = MAKERS[optimizer](
            [
                {"params": [one], "lr": self.rates["learning_rate"] * scale}
                for one, scale in zip(self.parameters, SCALES[:, member].tolist(), strict=True)
            ]
        )

    @torch.no_grad()
    def step(self, gradients: Sequence[Tensor]) -> float:
        """Clip, recover, shrink and step; the norm."""
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        if self.rates["clip_value"] < WITHOUT:
            nn.utils.clip_grad_value_(self.parameters, self.rates["clip_value"])
        norm = nn.utils.get_total_norm(
            [one.grad for one in self.parameters if one.grad is not None]
        )
        if self.rates["clip_norm"] < WITHOUT:
            nn.utils.clip_grads_with_norm_(self.parameters, self.rates["clip_norm"], norm)
        if not norm.isfinite():
            if math.isnan(self.rates["recovery"]):
                return float(norm)
            for parameter in self.parameters:
                parameter.grad = self.rates["recovery"] * parameter
        for parameter in self.parameters:
            parameter.mul_(1 - self.rates["learning_rate"] * self.rates["weight_decay"])
        self.optimizer.step()
        return float(norm)


def assert_close(found: Tensor, expected: Tensor, tolerance: float = TOLERANCE) -> None:
    if expected.numel():
        bound = tolerance * max(float(expected.abs().max()), 1e-3)
        torch.testing.assert_close(found, expected, rtol=0, atol=bound, check_dtype=False)


@pytest.fixture(params=["kernel", "torch"])
def by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who computes the steps."""
    if request.param == "torch":
        monkeypatch.setenv("REFLECTORY_BACKEND", "torch")
    elif library() is None:
        pytest.skip("no C++ compiler here")


@pytest.mark.usefixtures("by")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_each_member_goes_where_torchs_optimizer_takes_it(optimizer: OptimizerName) -> None:
    """Through steps whose gradients one member has not, that recovers, and one that does not."""
    generator = torch.Generator().manual_seed(0)
    parameters = drawn(generator)
    together = Members.of(optimizer, parameters)
    alone = [Alone(optimizer, parameters, member) for member in range(MEMBERS)]
    for step in range(6):
        gradients = [one * 10 ** (step % 3 - 1) for one in drawn(generator)]
        if step in (0, 3):
            gradients[1][0, 3], gradients[4][1, 5, 6] = torch.nan, torch.inf
            gradients[3][3, 0, 4096] = torch.nan
        norms = together.step(gradients)
        apart = [one.step([g[m] for g in gradients]) for m, one in enumerate(alone)]
        expected = torch.tensor(apart, dtype=torch.float64)
        # torch adds up all squares in single precision.
        torch.testing.assert_close(norms, expected, rtol=1e-5, atol=0, equal_nan=True)
        for member, one in enumerate(alone):
            for found, right in zip(together.parameters, one.parameters, strict=True):
                assert_close(found[member], right.detach())
    names = {"adam": ("exp_avg", "exp_avg_sq"), "rmsprop": ("square_avg",), "adagrad": ("sum",)}
    for kept, name in zip(together.moments, names.get(optimizer, ()), strict=True):
        for member, one in enumerate(alone):
            for found, parameter in zip(kept, one.parameters, strict=True):
                assert_close(found[member], one.optimizer.state[parameter][name])
    # The second member's infinite component was clipped; the fourth was hit twice.
    assert together.steps.tolist() == [[6, 6, 6, 4, 6]] * len(SHAPES)


@pytest.mark.usefixtures("by")
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_member_without_a_finite_loss_shrinks_or_stays_as_it_is(
    optimizer: OptimizerName,
) -> None:
    generator = torch.Generator().manual_seed(1)
    parameters = drawn(generator)
    members = Members.of(optimizer, parameters)
    members.step(drawn(generator), lost=[0, 1])
    for found, before in zip(members.parameters, parameters, strict=True):
        assert torch.equal(found[1], before[1])
        assert (found[0].abs() <= before[0].abs()).float().mean() > 0.9 or not before.numel()
        assert not torch.equal(found[2], before[2]) or not before.numel()
    assert all(not one[1].any() for kept in members.moments for one in kept)
    assert members.steps.tolist() == [[1, 0, 1, 1, 1]] * len(SHAPES)


@needs_kernels
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_members_together_have_the_very_numbers_of_each_alone(optimizer: OptimizerName) -> None:
    generator = torch.Generator().manual_seed(2)
    parameters, gradients = drawn(generator), [drawn(generator) for _ in range(2)]
    together = Members.of(optimizer, parameters)
    norms = [together.step(given) for given in gradients]
    for member in range(MEMBERS):
        own = slice(member, member + 1)
        alone = Members.of(optimizer, [one[own] for one in parameters])
        alone.rates = MemberRates(**{name: one[own] for name, one in vars(RATES).items()})
        alone.scales = SCALES[:, own]
        for given, norm in zip(gradients, norms, strict=True):
            assert torch.equal(alone.step([one[own] for one in given]), norm[own])
        *found, steps = alone.numbers()
        *expected, all_steps = together.numbers()
        assert all(torch.equal(one, both[own]) for one, both in zip(found, expected, strict=True))
        assert torch.equal(steps, all_steps[:, own])


@needs_kernels
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_any_number_of_threads_gives_the_same_numbers(optimizer: OptimizerName) -> None:
    """The work is worth three threads."""
    generator = torch.Generator().manual_seed(3)
    parameter, gradient = (torch.randn(3, 150_000, generator=generator) for _ in range(2))
    rates = MemberRates(**{name: one[:3].clone() for name, one in vars(RATES).items()})
    found: list[list[Tensor]] = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            members = Members.of(optimizer, [parameter])
            members.rates, members.scales = rates, SCALES[:1, :3]
            found.append([members.step([gradient]), *members.numbers()])
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *found))


@needs_kernels
def test_norms_are_exact_to_rounding_and_overflow_as_torchs() -> None:
    generator = torch.Generator().manual_seed(4)
    gradient = torch.randn(2, 100_003, generator=generator)
    without = reals(WITHOUT, WITHOUT)
    exact = gradient.double().norm(dim=1)
    torch.testing.assert_close(gradient_norms([gradient], without), exact, rtol=1e-7, atol=0)
    large = torch.full((2, 4), 1e20)
    assert gradient_norms([large], without).isinf().all()
    assert large.norm().isinf()


def test_double_precision_is_computed_by_torch() -> None:
    generator = torch.Generator().manual_seed(5)
    parameters, gradients = drawn(generator), drawn(generator)
    single, double = (
        Members.of("adam", [one.to(dtype) for one in parameters])
        for dtype in (torch.float32, torch.float64)
    )
    single.step(gradients)
    double.step([one.double() for one in gradients])
    for found, exact in zip(single.parameters, double.parameters, strict=True):
        assert_close(found.double(), exact)


@needs_kernels
def test_gradients_may_be_strided_and_are_not_changed() -> None:
    generator = torch.Generator().manual_seed(6)
    parameters, gradients = drawn(generator), drawn(generator)
    strided = [one.mT.contiguous().mT if one.dim() > 2 else one for one in gradients]
    copies = [one.clone() for one in gradients]
    one, other = Members.of("adam", parameters), Members.of("adam", parameters)
    assert torch.equal(one.step(gradients), other.step(strided))
    assert all(map(torch.equal, one.numbers(), other.numbers()))
    assert all(map(torch.equal, gradients, copies))


@needs_kernels
def test_a_backward_pass_after_a_step_sees_that_parameters_have_changed() -> None:
    members = Members.of("sgd", drawn(torch.Generator().manual_seed(7)))
    parameter = members.parameters[0].requires_grad_()
    result = parameter.square().sum()
    members.step([torch.ones_like(one) for one in members.parameters])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


@pytest.mark.usefixtures("by")
def test_what_does_not_fit_is_refused() -> None:
    parameters = drawn(torch.Generator().manual_seed(8))

    def refused(match: str, **changed: object) -> None:
        members = Members.of("adam", parameters)
        given: dict[str, object] = {
            "optimizer": "adam",
            "parameters": members.parameters,
            "gradients": drawn(torch.Generator()),
            "moments": members.moments,
            "steps": members.steps,
            "norms": torch.ones(MEMBERS, dtype=torch.float64),
            "rates": RATES,
            "scales": SCALES,
        }
        with pytest.raises(ValueError, match=match):
            update_(**(given | changed))  # pyright: ignore[reportArgumentType] -- wrong on purpose
        assert all(map(torch.equal, members.parameters, parameters))

    refused("there is no optimizer 'momentum'", optimizer="momentum")
    refused("2 moments are given; sgd keeps 0", optimizer="sgd")
    refused(r"lists have \[5, 6\] entries", gradients=drawn(torch.Generator())[1:])
    refused(r"scales is torch\.float64 \[5, 5\]", scales=SCALES[1:])
    refused("no tensor of members", parameters=[])
    refused(r"one of gradients is torch\.float64", gradients=[one.double() for one in parameters])
    refused(r"steps is torch\.int64 \[5\]", steps=torch.zeros(MEMBERS, dtype=torch.int64))
    refused("steps has numbers from -1", steps=torch.full(SCALES.shape, -1))
    strided = torch.zeros(7, 5, 3, MEMBERS).permute(3, 2, 1, 0)
    refused("parameters has strides", parameters=[strided, *parameters[1:]])
    with pytest.raises(ValueError, match=r"clip_value is torch\.float32"):
        gradient_norms(parameters, torch.ones(MEMBERS))
    with pytest.raises(ValueError, match="an optimizer takes real numbers"):
        gradient_norms([one.long() for one in parameters], RATES.clip_value)


@needs_kernels
def test_tensors_that_share_memory_are_refused() -> None:
    rates = MemberRates(**{name: one[:2].clone() for name, one in vars(RATES).items()})
    memory = torch.randn(64)
    parameter, beside, across = memory[:20].view(2, 10), memory[20:40], memory[10:30]

    def step(gradient: Tensor, moment: Tensor) -> None:
        update_(
            "rmsprop",
            [parameter],
            [gradient.view(2, 10)],
            [[moment.view(2, 10)]],
            steps=torch.zeros(1, 2, dtype=torch.int64),
            norms=torch.ones(2, dtype=torch.float64),
            rates=rates,
            scales=SCALES[:1, :2],
        )

    step(beside, torch.zeros(20))
    for gradient, moment in (
        (across, torch.zeros(20)),
        (torch.zeros(20), across),
        (parameter, torch.zeros(20)),
        (beside, memory[30:50]),
    ):
        with pytest.raises(ValueError, match="share memory"):
            step(gradient, moment)
