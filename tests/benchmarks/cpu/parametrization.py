"""Making W of its parameters, forward and backward: ours against what others offer.

`python -m tests.benchmarks.cpu.parametrization N M ROUNDS` answers in JSON.
"""

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from models.parametrizations import HouseholderSvd
from models.parametrizations.householder_svd import HouseholderSvdLinear
from models.spec import Slot
from tests.benchmarks.cpu.contestant import LOOP
from tests.benchmarks.cpu.reflectors import ReflectorLoop
from tests.benchmarks.cpu.timing import is_noisy, timed

PRODUCT = "torch.linalg.householder_product"
OURS = "ours, as it is applied"
_SLOW_ROUNDS = 3
_TOLERANCE = 1e-5


def measured(n: int, m: int, *, rounds: int) -> dict[str, Any]:
    """Times and ratios of everything that is installed."""
    linear = HouseholderSvd(m1=m, m2=m).build(
        Slot(out_features=n, in_features=n), generator=torch.Generator().manual_seed(0)
    )
    assert isinstance(linear, HouseholderSvdLinear)
    cotangent = torch.randn(n, n, generator=torch.Generator().manual_seed(1))
    makers: dict[str, Callable[[], Tensor]] = {
        PRODUCT: lambda: _by_product(linear),
        LOOP: lambda: _by_loop(linear),
    }
    runs = {name: _step(linear, make, cotangent) for name, make in makers.items()}
    runs[OURS] = _factors_step(linear)
    wanted = linear.make_form().whole()[0].detach()
    wrong = [
        name
        for name, make in makers.items()
        if float((make() - wanted).detach().abs().max()) > _TOLERANCE
    ]
    for mapping in ("householder", "matrix_exp", "cayley"):
        layer = parametrizations.orthogonal(nn.Linear(n, n, bias=False), orthogonal_map=mapping)
        runs[f"nn.utils.parametrizations.orthogonal, {mapping} (one factor)"] = _module_step(
            layer, cotangent
        )
    missing: list[str] = []
    for name, add in (("geotorch", _geotorch), ("torch_householder", _torch_householder)):
        if importlib.util.find_spec(name) is None:
            missing.append(name)
        else:
            runs[f"{name} (one factor)"] = add(n, m, cotangent)
    timings = timed(
        runs,
        baseline=PRODUCT,
        rounds=rounds,
        fewer=None if n < 256 else dict.fromkeys(set(runs) - {PRODUCT, OURS}, _SLOW_ROUNDS),
    )
    return {
        "n": n,
        "m": m,
        "form": type(linear.make_form()).__name__,
        "noisy": is_noisy(timings[PRODUCT]),
        "missing": missing,
        "wrong": wrong,
        "rows": [{"name": name, **asdict(timing)} for name, timing in timings.items()],
    }


def _step(linear: nn.Module, make: Callable[[], Tensor], cotangent: Tensor) -> Callable[[], object]:
    def run() -> None:
        linear.zero_grad(set_to_none=True)
        make().backward(cotangent)

    return run


def _factors_step(linear: HouseholderSvdLinear) -> Callable[[], object]:
    """Forward and backward of the form that the sequences take, whichever it is."""
    tensors = _tensors_of(linear)
    cotangents = [torch.randn_like(tensor) for tensor in tensors]

    def run() -> None:
        linear.zero_grad(set_to_none=True)
        torch.autograd.backward(_tensors_of(linear), cotangents)

    return run


def _tensors_of(linear: HouseholderSvdLinear) -> list[Tensor]:
    factors = linear.make_form()
    names = ("weight", "left", "right", "diagonal")
    return [value for name in names if isinstance(value := getattr(factors, name, None), Tensor)]


def _module_step(layer: nn.Module, cotangent: Tensor) -> Callable[[], object]:
    def run() -> None:
        layer.zero_grad(set_to_none=True)
        cast(Tensor, layer.weight).backward(cotangent)

    return run


def _by_product(linear: HouseholderSvdLinear) -> Tensor:
    """U and V as squares: the product gives as many columns as it has reflectors, so some are 0."""
    values = linear.v.signed(linear.u.signed(linear.singular_values()))[0]
    u, v = (_square(side.rows()[0]) for side in (linear.u, linear.v))
    return (u * values) @ v.t()


def _square(rows: Tensor) -> Tensor:
    """`H(y_0) H(y_1) ...` `[n, n]` of staircase rows `[m, n]`."""
    count, size = rows.shape
    columns = rows.t() / rows.diagonal()
    scales = 2 / columns.square().sum(0)
    missing = size - count
    padded = nn.functional.pad(columns, (0, missing))
    return torch.linalg.householder_product(padded, nn.functional.pad(scales, (0, missing)))


def _by_loop(linear: HouseholderSvdLinear) -> Tensor:
    """Every reflector applied to the identity, the sign of a 1 x 1 one to the singular values."""
    size = linear.in_features
    loop = ReflectorLoop(linear, lean=False)
    loop.values = linear.v.signed(linear.u.signed(linear.singular_values())).unbind(0)
    return loop.apply(torch.eye(size), 0).t()


def _geotorch(n: int, m: int, cotangent: Tensor) -> Callable[[], object]:
    layer = nn.Linear(n, n, bias=False)
    cast(Any, importlib.import_module("geotorch")).orthogonal(layer, "weight")
    return _module_step(layer, cotangent)


def _torch_householder(n: int, m: int, cotangent: Tensor) -> Callable[[], object]:
    function = cast(Any, importlib.import_module("torch_householder")).torch_householder_orgqr
    entries = nn.Parameter(torch.randn(n, m).tril(-1))

    def run() -> None:
        entries.grad = None
        function(entries).backward(cotangent[:, :m])

    return run


def main() -> None:
    """Measure what the arguments name."""
    n, m, rounds = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    sys.stdout.write(json.dumps(measured(n, m, rounds=rounds)))


if __name__ == "__main__":
    main()
