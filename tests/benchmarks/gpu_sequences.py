"""`python -m tests.benchmarks.gpu_sequences [FILE]`: sequences on a GPU, the vendor's beside ours.

torch's own modules (cuDNN) in fp32, with TF32 and in bf16, eagerly and as replays of a CUDA graph;
and what our dispatch runs in fp32. Needs torch alone. Writes a Markdown table to the terminal and
to a file, `deploy/GPU_BENCHMARKS.md` unless another is named; without a GPU it says so.
"""

import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from models.backends.call import Loop, PlainInputs, SequenceCall
from models.backends.loops import (
    gru_sequence_reset_after,
    gru_sequence_reset_before,
    lstm_sequence,
    rnn_sequence,
)
from models.backends.sequences import choose, run_sequence
from models.backends.vendor import allow_tf32
from models.forms import DenseForm, Form, LowRankForm
from models.kernels.calls import GATES, Kind
from models.kernels.structs import CellName
from models.math.activations import activation_of

FILE = Path(__file__).parents[2] / "deploy" / "GPU_BENCHMARKS.md"
STEPS = 200
FEATURES = 64
SIZES = (128, 256, 512, 1024)
BATCHES = (128, 20)
RANK_SHARE = 16
ROUNDS = 5
CALLS = 10
WARM_UPS = 3

Call = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """One shape, forward alone or with its backward pass."""

    size: int
    batch: int
    training: bool


@dataclass(frozen=True)
class Cell:
    """A cell of ours, and torch's module of the same equations where there is one."""

    name: str
    kind: Kind
    loop: Loop
    vendor: Callable[[int, int], nn.Module] | None


CELLS: tuple[Cell, ...] = (
    Cell(
        "rnn tanh",
        Kind("rnn", "tanh", 0.0),
        partial(rnn_sequence, activation=torch.tanh),
        nn.RNN,
    ),
    Cell(
        "rnn leaky_relu",
        Kind("rnn", "leaky_relu", 0.1),
        partial(rnn_sequence, activation=activation_of("leaky_relu", leak=0.1)),
        None,
    ),
    Cell("gru after", Kind("gru_reset_after", "tanh", 0.0), gru_sequence_reset_after, nn.GRU),
    Cell("gru before", Kind("gru_reset_before", "tanh", 0.0), gru_sequence_reset_before, None),
    Cell("lstm", Kind("lstm", "tanh", 0.0), lstm_sequence, nn.LSTM),
)


def microseconds_per_step(call: Call) -> float:
    """Median of rounds of calls between two events."""
    for _ in range(WARM_UPS):
        call()
    found: list[float] = []
    for _ in range(ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for _ in range(CALLS):
            call()
        end.record()
        end.synchronize()
        found.append(1000 * begin.elapsed_time(end) / CALLS / STEPS)
    return statistics.median(found)


def replays(call: Call) -> float | str:
    """The same for a graph of the call; why not, where it cannot be captured."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except RuntimeError as error:
        return type(error).__name__
    return microseconds_per_step(graph.replay)


def vendor_call(module: nn.Module, case: Case, dtype: torch.dtype) -> Call:
    module = module.to("cuda", dtype)
    x = torch.randn(STEPS, case.batch, FEATURES, device="cuda", dtype=dtype)
    if not case.training:

        @torch.inference_mode()
        def infer() -> object:
            return module(x)

        return infer
    parameters = list(module.parameters())
    upstream = torch.randn(STEPS, case.batch, case.size, device="cuda", dtype=dtype)

    def train() -> object:
        states, _ = module(x)
        return torch.autograd.grad(states, parameters, upstream)

    return train


def our_call(cell: Cell, case: Case, rank: int | None) -> tuple[Call, str]:
    """What dispatch runs in fp32, and its name."""
    name: CellName = cell.kind.cell  # pyright: ignore[reportAssignmentType] -- cells only
    gates, n = GATES[name], case.size

    def draw(*shape: int, scale: float) -> Tensor:
        return (scale * torch.randn(shape, device="cuda")).requires_grad_(case.training)

    if rank is None:
        weights = [draw(gates, n, n, scale=0.7 / n**0.5)]
    else:
        weights = [
            draw(gates, n, rank, scale=0.5 / rank**0.5),
            draw(gates, rank, n, scale=0.8 / n**0.5),
            draw(gates, n, scale=0.2),
        ]
    w_in, bias = draw(gates * n, FEATURES, scale=0.1), draw(gates * n, scale=0.1)
    x = torch.randn(STEPS, case.batch, FEATURES, device="cuda")
    parts = 2 if cell.kind.cell == "lstm" else 1
    initial = tuple(torch.zeros(case.batch, n, device="cuda") for _ in range(parts))
    upstream = torch.randn(STEPS, case.batch, n, device="cuda")

    def sequence() -> SequenceCall:
        form: Form = DenseForm(*weights) if rank is None else LowRankForm(*weights)
        inputs = PlainInputs(x, w_in, bias)
        return SequenceCall(cell.kind, cell.loop, form, inputs, initial)

    def forward() -> Tensor:
        return run_sequence(sequence())[0]

    def call() -> object:
        if not case.training:
            with torch.inference_mode():
                return forward()
        return torch.autograd.grad(forward(), [*weights, w_in, bias], upstream)

    return call, choose(sequence())


@contextmanager
def tf32(*, allowed: bool) -> Iterator[None]:
    allow_tf32(allowed=allowed)
    try:
        yield
    finally:
        allow_tf32(allowed=False)


def row(cell: Cell, case: Case) -> list[str]:
    """One line of the table, in microseconds per step."""
    cells: list[float | str] = []
    kinds = ((torch.float32, False), (torch.float32, True), (torch.bfloat16, False))
    for dtype, rounded in kinds:
        if cell.vendor is None:
            cells += ["", ""]
            continue
        with tf32(allowed=rounded):
            call = vendor_call(cell.vendor(FEATURES, case.size), case, dtype)
            cells += [microseconds_per_step(call), replays(call)]
    for rank in (None, max(case.size // RANK_SHARE, 1)):
        call, backend = our_call(cell, case, rank)
        cells.append(f"{microseconds_per_step(call):.2f} {backend}")
    what = "training" if case.training else "inference"
    head = [cell.name, str(case.size), str(case.batch), what]
    return head + [found if isinstance(found, str) else f"{found:.2f}" for found in cells]


def table() -> Iterator[Sequence[str]]:
    yield (
        *("cell", "n", "B", "pass"),
        *(f"cuDNN {kind} {how}" for kind in ("fp32", "TF32", "bf16") for how in ("eager", "graph")),
        *("ours dense", f"ours low rank n/{RANK_SHARE} + diagonal"),
    )
    yield ("---",) * 12
    for cell in CELLS:
        for size in SIZES:
            for batch in BATCHES:
                for training in (False, True):
                    yield row(cell, Case(size, batch, training))


def main() -> None:
    """Measure, print and write."""
    if not torch.cuda.is_available():
        sys.stdout.write("No GPU here that torch can use: nothing was measured.\n")
        return
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    torch.manual_seed(0)
    title = (
        f"# Sequences on a GPU\n\n"
        f"{torch.cuda.get_device_name()} · torch {torch.__version__} · "
        f"CUDA {torch.version.cuda} · cuDNN {torch.backends.cudnn.version()} · "
        f"{datetime.now(UTC):%Y-%m-%d}\n\n"
        f"Microseconds per step of T = {STEPS} steps with {FEATURES} inputs, medians of {ROUNDS} "
        f"rounds of {CALLS} calls by CUDA events; training is a forward and a backward pass. Ours "
        "is fp32 without TF32, by the backend that dispatch chose. `python -m "
        "tests.benchmarks.gpu_sequences` writes this file.\n\n"
    )
    lines = [title]
    sys.stdout.write(title)
    for cells in table():
        lines.append(f"| {' | '.join(cells)} |\n")
        sys.stdout.write(lines[-1])
        sys.stdout.flush()
    file.write_text("".join(lines))


if __name__ == "__main__":
    main()
