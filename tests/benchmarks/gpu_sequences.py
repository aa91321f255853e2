"""`python -m tests.benchmarks.gpu_sequences [--dry] [FILE]`: sequences on a GPU beside cuDNN's.

Ours with diagonal plus low rank, and whole, beside torch's own modules (cuDNN, dense) of equal n;
then 16 stacked members beside one. fp32 without TF32 on both sides. Contestants take turns in
random order; what is compared is the median of each round's ratios. Every shape is checked against
double precision in the same run, and the targets are printed as reached or not. Writes the section
"Measured" of `deploy/docs/benchmarks/gpu.md` unless another file is named; without a GPU it says
so.

`--dry` goes the same way at tiny sizes without a GPU, in Triton's interpreter: its times say
nothing.
"""

import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from models.backends.call import Loop, PlainInputs, SequenceCall
from models.backends.loops import gru_sequence_reset_after, lstm_sequence, rnn_sequence
from models.backends.sequences import TORCH, TRITON, choose, run_sequence
from models.backends.vendor import allow_tf32
from models.forms import DenseForm, Form, LowRankForm
from models.kernels.calls import GATES, Kind
from models.kernels.structs import CellName

FILE = Path(__file__).parents[2] / "deploy/docs/benchmarks/gpu.md"
BEGIN, END = "<!-- measured -->\n", "<!-- end of measured -->\n"
RANK_SHARE = 16
TOLERANCE = 1e-4
"""Of single precision over all steps, as a share of the largest number."""

Call = Callable[[], object]


@dataclass(frozen=True)
class Plan:
    """What is measured, and how often."""

    device: str
    sizes: tuple[int, ...]
    steps: int
    batch: int
    features: int
    members: int
    rounds: int
    calls: int


REAL = Plan("cuda", (128, 256, 512, 1024), 200, 128, 64, 16, 9, 10)
DRY = Plan("cpu", (8,), 2, 2, 3, 2, 2, 1)


@dataclass(frozen=True)
class Cell:
    """A cell of ours, and torch's module of the same equations."""

    name: str
    cell: CellName
    loop: Loop
    vendor: Callable[[int, int], nn.Module]


CELLS: tuple[Cell, ...] = (
    Cell("rnn", "rnn", partial(rnn_sequence, activation=torch.tanh), nn.RNN),
    Cell("gru", "gru_reset_after", gru_sequence_reset_after, nn.GRU),
    Cell("lstm", "lstm", lstm_sequence, nn.LSTM),
)


class Problem:
    """One cell at one size with random numbers, of several members or of one."""

    def __init__(self, plan: Plan, cell: Cell, size: int, *, whole: bool, members: int = 1) -> None:
        self.plan, self.cell, self.size, self.whole = plan, cell, size, whole
        gates, rank = GATES[cell.cell], max(size // RANK_SHARE, 1)

        def draw(*shape: int, scale: float) -> Tensor:
            whole_shape = shape if members == 1 else (members, *shape)
            return (scale * torch.randn(whole_shape, device=plan.device)).requires_grad_()

        matrices = (
            [draw(gates, size, size, scale=0.7 / size**0.5)]
            if whole
            else [
                draw(gates, size, rank, scale=0.5 / rank**0.5),
                draw(gates, rank, size, scale=0.8 / size**0.5),
                draw(gates, size, scale=0.2),
            ]
        )
        own = draw(gates * size, plan.features, scale=0.1), draw(gates * size, scale=0.1)
        self.tensors = [*matrices, *own]
        self.x = torch.randn(plan.steps, plan.batch, plan.features, device=plan.device)
        self.members = members
        states = plan.steps, plan.batch, size
        shape = states if members == 1 else (members, *states)
        self.upstream = torch.randn(shape, device=plan.device)

    def sequence(self, *tensors: Tensor) -> SequenceCall:
        *matrices, w_in, bias = tensors
        form: Form = DenseForm(*matrices) if self.whole else LowRankForm(*matrices)
        state = self.x.new_zeros(self.plan.batch, self.size, dtype=bias.dtype)
        parts = 2 if self.cell.cell == "lstm" else 1
        kind = Kind(self.cell.cell, "tanh", 0.0)
        inputs = PlainInputs(self.x.to(bias.dtype), w_in, bias)
        return SequenceCall(kind, self.cell.loop, form, inputs, (state,) * parts)

    def who(self) -> str:
        call = self.sequence(*self.tensors)
        return TRITON.name if TRITON.takes(call) else choose(call)

    def states(self, *tensors: Tensor) -> Tensor:
        """By our kernels where they take it, whatever dispatch would choose."""
        call = self.sequence(*tensors)
        return (TRITON.run(call) if TRITON.takes(call) else run_sequence(call))[0]

    def train(self) -> Sequence[Tensor]:
        """A forward and a backward pass of all members."""
        of_all = self.states if self.members == 1 else torch.vmap(self.states)
        return torch.autograd.grad(of_all(*self.tensors), self.tensors, self.upstream)

    def infer(self) -> object:
        with torch.inference_mode():
            return self.states(*self.tensors)

    def error(self) -> float:
        """Of one member's states and gradients against a loop in double precision."""
        exact = [tensor.detach().double().requires_grad_() for tensor in self.tensors]
        expected = TORCH.run(self.sequence(*exact))[0]
        theirs = torch.autograd.grad(expected, exact, self.upstream.double())
        pairs = zip((self.states(*self.tensors), *self.train()), (expected, *theirs), strict=True)
        return max(((a - b).abs().max() / b.abs().max()).item() for a, b in pairs)


def vendor_calls(plan: Plan, cell: Cell, size: int) -> tuple[Call, Call]:
    """Torch's module, trained and asked."""
    module = cell.vendor(plan.features, size).to(plan.device)
    parameters = list(module.parameters())
    x = torch.randn(plan.steps, plan.batch, plan.features, device=plan.device)
    upstream = torch.randn(plan.steps, plan.batch, size, device=plan.device)

    def train() -> object:
        return torch.autograd.grad(module(x)[0], parameters, upstream)

    def infer() -> object:
        with torch.inference_mode():
            return module(x)

    return train, infer


def microseconds_per_step(plan: Plan, call: Call) -> float:
    """Between two events on the device."""
    if plan.device == "cpu":
        begin = time.perf_counter()
        for _ in range(plan.calls):
            call()
        return 1e6 * (time.perf_counter() - begin) / plan.calls / plan.steps
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    for _ in range(plan.calls):
        call()
    last.record()
    last.synchronize()
    return 1000 * first.elapsed_time(last) / plan.calls / plan.steps


def interleaved(plan: Plan, calls: Mapping[str, Call]) -> dict[str, list[float]]:
    """Microseconds per step of each round, after two calls to warm up."""
    for call in calls.values():
        call()
        call()
    found: dict[str, list[float]] = {name: [] for name in calls}
    order = random.Random(0)
    for _ in range(plan.rounds):
        for name in order.sample(sorted(calls), len(calls)):
            found[name].append(microseconds_per_step(plan, calls[name]))
    return found


def with_spread(times: Sequence[float]) -> str:
    """Median and median distance from it."""
    median = statistics.median(times)
    return f"{median:.2f} ± {statistics.median(abs(one - median) for one in times):.2f}"


def ratio(times: Sequence[float], base: Sequence[float]) -> float:
    """Median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(times, base, strict=True))


def table(plan: Plan) -> Iterator[str]:
    """Lines of Markdown: times, then what became of the targets."""
    yield (
        "| cell | n | pass | cuDNN whole, µs a step | ours low rank | of cuDNN's | ours whole | "
        "of cuDNN's | by | error |\n"
    )
    yield f"|{'---|' * 10}\n"
    trained: dict[tuple[str, int], float] = {}
    for cell in CELLS:
        for size in plan.sizes:
            thin, whole = (Problem(plan, cell, size, whole=kind) for kind in (False, True))
            error = max(thin.error(), whole.error())
            train, infer = vendor_calls(plan, cell, size)
            for name, calls in (
                ("training", {"theirs": train, "thin": thin.train, "whole": whole.train}),
                ("inference", {"theirs": infer, "thin": thin.infer, "whole": whole.infer}),
            ):
                found = interleaved(plan, calls)
                shares = {who: ratio(found[who], found["theirs"]) for who in ("thin", "whole")}
                if name == "training":
                    trained[cell.name, size] = shares["thin"]
                yield (
                    f"| {cell.name} | {size} | {name} | {with_spread(found['theirs'])} | "
                    f"{with_spread(found['thin'])} | {shares['thin']:.2f} | "
                    f"{with_spread(found['whole'])} | {shares['whole']:.2f} | "
                    f"{thin.who()}, {whole.who()} | {error:.1e} |\n"
                )
            if error > TOLERANCE:
                raise SystemExit(f"{cell.name} of n = {size} is off by {error:.1e}")
    yield from targets(trained)
    yield from stacks(plan)


def targets(trained: Mapping[tuple[str, int], float]) -> Iterator[str]:
    """Low-rank GRU and LSTM against cuDNN's dense."""
    yield "\n"
    for (cell, size), found in trained.items():
        if cell != "rnn":
            yield _said(f"{cell}, n = {size}, trained", found, 1.0 if size <= 256 else 1 / 3)


def stacks(plan: Plan) -> Iterator[str]:
    """Members of a stack beside one alone, at the smallest size."""
    for cell in CELLS:
        one = Problem(plan, cell, plan.sizes[0], whole=False)
        many = Problem(plan, cell, plan.sizes[0], whole=False, members=plan.members)
        found = interleaved(plan, {"one": one.train, "many": many.train})
        what = f"{plan.members} stacked {cell.name} of n = {plan.sizes[0]}, of the time of one"
        yield _said(what, ratio(found["many"], found["one"]), 1.5)


def _said(what: str, found: float, most: float) -> str:
    return f"- {what}: {found:.2f}, target {most:.2f}: {'' if found <= most else 'not '}reached\n"


def written(document: str, section: str) -> str:
    """A document with what was measured replaced."""
    before, _, rest = document.partition(BEGIN)
    return f"{before}{BEGIN}{section}{END}{rest.partition(END)[2]}"


def main() -> None:
    """Measure, print and write."""
    arguments = [one for one in sys.argv[1:] if one != "--dry"]
    dry = "--dry" in sys.argv
    if dry:
        # Read when the kernels are imported, which the first sequence does.
        os.environ["TRITON_INTERPRET"] = "1"
    elif not torch.cuda.is_available():
        sys.stdout.write("No GPU here that torch can use: nothing was measured.\n")
        return
    plan = DRY if dry else REAL
    torch.manual_seed(0)
    allow_tf32(allowed=False)
    device = "no GPU" if dry else torch.cuda.get_device_name()
    title = (
        f"\n{device}, torch {torch.__version__}, CUDA {torch.version.cuda}, "
        f"{datetime.now(UTC):%Y-%m-%d}. T = {plan.steps}, B = {plan.batch}, {plan.features} "
        f"inputs, rank n / {RANK_SHARE}; medians of {plan.rounds} rounds of {plan.calls} calls "
        "by events on the device, and of each round's ratios.\n\n"
    )
    lines = [title]
    sys.stdout.write(title)
    for line in table(plan):
        lines.append(line)
        sys.stdout.write(line)
        sys.stdout.flush()
    if arguments or not dry:
        file = Path(arguments[0]) if arguments else FILE
        before = file.read_text() if file.exists() else FILE.read_text()
        file.write_text(written(before, f"{''.join(lines)}\n"))


if __name__ == "__main__":
    main()
