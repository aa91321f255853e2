"""Whether a contestant computes what it should: the same step in double precision."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.linear import StructuredLinear, clear_forms
from tests.benchmarks.cpu.cases import Case, Mode
from tests.benchmarks.cpu.contestant import Contestant, Data, backend, step_of

OUTPUT_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
"""Looser than for outputs: sums over T * B terms of both signs, after T steps there and back, in
which single precision loses about sqrt(T) times its rounding."""
SPECTRUM_TOLERANCE = 4e-6
"""Up to 256 reflectors are multiplied, each of which rounds every entry a few times."""
_VANISHED = 1e-6
"""Share of the largest gradient below which one counts as vanished over the steps: it is then held
against this scale, for its own may be beyond the range of single precision."""


@dataclass(frozen=True)
class Reference:
    """Outputs and gradients by name, in double precision."""

    outputs: Tensor
    gradients: dict[str, Tensor]


@dataclass(frozen=True)
class Errors:
    """Largest errors of a tensor, relative to its largest entry; the worst of all gradients."""

    outputs: float
    gradients: float | None

    @property
    def tolerable(self) -> bool:
        """Whether both are within their tolerance; NaN is not."""
        gradients = self.gradients is None or self.gradients <= GRADIENT_TOLERANCE
        return self.outputs <= OUTPUT_TOLERANCE and gradients


def reference(case: Case, data: Data, mode: Mode) -> Reference:
    """The case step by step in torch's operations."""
    model = copy.deepcopy(case.spec.build(seed=0)).double()
    doubled = Data(data.x.double(), data.cotangent.double())
    with backend("torch"):
        outputs = step_of(model, model, doubled, mode)()
    return Reference(outputs, _gradients(model))


def errors(contestant: Contestant, expected: Reference, mode: Mode) -> Errors | None:
    """None for a contestant with parameters of its own."""
    if contestant.shares is None:
        return None
    outputs = contestant.run()
    found = _error(outputs, expected.outputs, least=0)
    if mode == "infer":
        return Errors(found, None)
    gradients = _gradients(contestant.shares)
    assert gradients.keys() == expected.gradients.keys()
    least = _VANISHED * max(float(value.abs().max()) for value in expected.gradients.values())
    worst = max(
        _error(value, expected.gradients[name], least=least) for name, value in gradients.items()
    )
    return Errors(found, worst)


def spectrum_error(model: nn.Module) -> float | None:
    """The largest difference between W's singular values and those the parametrization states."""
    found: float | None = None
    for part in model.modules():
        if not isinstance(part, StructuredLinear):
            continue
        clear_forms(part)
        with torch.no_grad():
            stated = part.singular_values()
            if stated is None:
                continue
            weight = part.form().whole().double()
        computed = torch.linalg.svdvals(weight)
        ordered = stated.double().abs().sort(dim=-1, descending=True).values
        difference = float((computed - ordered).abs().max())
        found = difference if found is None else max(found, difference)
    return found


def _gradients(module: nn.Module) -> dict[str, Tensor]:
    return {
        name: parameter.grad
        for name, parameter in module.named_parameters()
        if parameter.grad is not None
    }


def _error(found: Tensor, expected: Tensor, *, least: float) -> float:
    # A tensor that is 0 everywhere has no scale of its own.
    scale = max(float(expected.abs().max()), least) or 1.0
    return float((found.double() - expected).abs().max()) / scale
