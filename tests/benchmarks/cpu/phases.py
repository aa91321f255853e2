"""Where a training step's time goes, phase by phase, beside the least that each can take.

`python -m tests.benchmarks.cpu.phases CASE ROUNDS` answers in JSON. What a step asks of the kernels
is recorded once and then asked again in parts: a backward pass without gradients of weights, then
with all of them.
"""

import json
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from models.architectures.feed_forward import FeedForwardNetwork
from models.architectures.recurrent_network import RecurrentNetwork
from models.kernels import calls
from models.linear import StructuredLinear, cache_forms
from models.model import parameter_groups
from search.training.optimizers import OPTIMIZERS
from search.training.trial_spec import TrainingSpec
from tests.benchmarks.cpu.cases import BY_NAME, Case
from tests.benchmarks.cpu.contestant import data_of, step_of
from tests.benchmarks.cpu.floor import Least, least_of_phases
from tests.benchmarks.cpu.machine import Peak, measured_peak
from tests.benchmarks.cpu.timing import timed

Network = RecurrentNetwork | FeedForwardNetwork
Runs = dict[str, Callable[[], object]]

WHOLE = "whole step"
INFERENCE = "inference"
REST = "rest: ends, autograd, Python"
_BOTH = " and "
"""Between two phases that only run together: the second takes what the first alone does not."""


def measured(case: Case, *, rounds: int) -> dict[str, Any]:
    """The phases' times and floors, and those of an inference with kept factors."""
    runs = _runs(case)
    timings = timed(runs, baseline=WHOLE, rounds=rounds)
    milliseconds = _by_phase({name: timing.median_ms for name, timing in timings.items()})
    peak = measured_peak(memory=True)
    least = least_of_phases(case)
    return {
        "case": case.name,
        "rows": [
            _row(name, ms, milliseconds[WHOLE], least.get(name), peak)
            for name, ms in milliseconds.items()
        ],
    }


def _by_phase(measured_ms: dict[str, float]) -> dict[str, float]:
    """One time for each phase, in order; what none of them accounts for is the rest."""
    found: dict[str, float] = {}
    for name, ms in measured_ms.items():
        first, _, second = name.partition(_BOTH)
        found[second or first] = max(0.0, ms - found[first]) if second else ms
    known = sum(ms for name, ms in found.items() if name not in (WHOLE, INFERENCE))
    found[REST] = max(0.0, found[WHOLE] - known)
    found[INFERENCE] = found.pop(INFERENCE)
    return found


def _row(
    name: str, ms: float, whole_ms: float, least: Least | None, peak: Peak | None
) -> dict[str, Any]:
    floor = least.milliseconds(peak) if least and peak else None
    return {
        "name": name,
        "ms": ms,
        "share": None if name == INFERENCE else ms / whole_ms,
        "floor_ms": floor,
        "reached": floor / ms if floor and ms else None,
        "gflops": least.flops / ms / 1e6 if least and ms else None,
        "gigabytes": least.moved / ms / 1e6 if least and ms else None,
    }


def _runs(case: Case) -> Runs:
    """What is timed, by the phases' names."""
    network = case.spec.build(seed=0)
    assert isinstance(network, Network)
    step = step_of(network, network, data_of(case), "train")
    with _recording() as record:
        step()
    groups = [{**group} for group in parameter_groups(network, 1e-6)]
    optimizer = OPTIMIZERS["adam"](groups, TrainingSpec())

    def whole() -> None:
        step()
        optimizer.step()

    whole()
    return {
        WHOLE: whole,
        **_makings(structured_of(network)),
        **record.replays(),
        "optimizer": optimizer.step,
        INFERENCE: _inference(case),
    }


def structured_of(network: Network) -> StructuredLinear:
    """The matrices that a case is about."""
    return network.recurrent if isinstance(network, RecurrentNetwork) else network.hidden


def _makings(linear: StructuredLinear) -> Runs:
    """Making factors, where there is something to make, and their gradients' way back."""
    parameters = [p for p in linear.parameters() if p.requires_grad]

    def made() -> list[Tensor]:
        return [tensor for tensor in linear.make_form().tensors() if tensor.requires_grad]

    stored = {parameter.data_ptr() for parameter in parameters}
    if all(tensor.data_ptr() in stored for tensor in made()):
        return {}
    cotangents = [torch.randn_like(tensor) for tensor in made()]

    def and_back() -> None:
        torch.autograd.grad(made(), parameters, cotangents)

    return {"factors": made, f"factors{_BOTH}their gradients": and_back}


def _inference(case: Case) -> Callable[[], object]:
    network = case.spec.build(seed=0)
    cache_forms(network)
    return step_of(network, network, data_of(case), "infer")


@dataclass
class _Record:
    """What the kernels were called with; it keeps the tensors alive."""

    forward: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])
    backward: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def replays(self) -> Runs:
        """The phases of the kernels; none where they do not compute the case."""
        if not (self.forward and self.backward):
            return {}
        (forward,), (backward,) = self.forward, self.backward
        *given, wanted = backward
        through = {name: tensor for name, tensor in wanted.items() if name in ("x", "h0", "c0")}
        return {
            "forward": partial(calls.forward, *forward),
            "backward, data": partial(calls.backward, *given, through),
            f"backward, data{_BOTH}backward, weights": partial(calls.backward, *backward),
        }


@contextmanager
def _recording() -> Generator[_Record]:
    """Keep what the kernels are called with, and call them."""
    record = _Record()
    forward, backward = calls.forward, calls.backward

    def run_forward(*arguments: Any) -> None:
        record.forward.append(arguments)
        forward(*arguments)

    def run_backward(*arguments: Any) -> None:
        record.backward.append(arguments)
        backward(*arguments)

    with patch.object(calls, "forward", run_forward), patch.object(calls, "backward", run_backward):
        yield record


def main() -> None:
    """Measure what the arguments name."""
    name, rounds = sys.argv[1:]
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(measured(BY_NAME[name], rounds=int(rounds))))


if __name__ == "__main__":
    main()
