"""Libraries that quantize a trained network as it is: onnxruntime and torchao.

Nobody trains on what they rounded. Each takes the widest dense network whose file, as the library
writes it, has at most so many bytes.
"""

import importlib.util
import io
import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from models.compression import to_torch
from models.network import Network
from search.tasks import Split
from tests.benchmarks.file_peers.candidates import (
    DENSE,
    KILOBYTE,
    Candidate,
    largest,
    smallest_file,
)
from tests.benchmarks.file_peers.runs import Run, Runs
from tests.benchmarks.file_peers.setups import ORIGINAL_WIDTH, SIZES, Setup
from tests.benchmarks.file_peers.stages import Started, file_accuracy, finalists, trained


@dataclass(frozen=True, kw_only=True)
class Quantized:
    """What a library made of a network."""

    bytes: int
    accuracy: Callable[[Split], float]


Quantize = Callable[[Network, Setup, int], Quantized]
"""Of a plain network of a width."""


def dynamically(network: Network, setup: Setup, width: int) -> Quantized:
    """onnxruntime's `quantize_dynamic` of our file, prepared as the library asks for."""
    quantization: Any = importlib.import_module("onnxruntime.quantization")
    preparation: Any = importlib.import_module("onnxruntime.quantization.shape_inference")
    content = smallest_file(network, setup.dense(width))
    logging.disable(logging.WARNING)
    try:
        with tempfile.TemporaryDirectory() as folder:
            plain, prepared, written = (Path(folder) / f"{name}.onnx" for name in "abc")
            plain.write_bytes(content)
            preparation.quant_pre_process(plain, prepared, skip_symbolic_shape=True)
            quantization.quantize_dynamic(
                prepared, written, weight_type=quantization.QuantType.QInt8
            )
            found = written.read_bytes()
    finally:
        logging.disable(logging.NOTSET)
    return Quantized(bytes=len(found), accuracy=lambda split: file_accuracy(found, split))


def by_torchao(network: Network, setup: Setup, width: int, *, bits: int) -> Quantized:
    """torchao's weight-only quantization of linear layers, as `torch.save` writes it.

    It knows no `nn.GRU`: the recurrence is written out with linear layers. Integers of 4 bits take
    a byte each, for packed ones need a GPU.
    """
    quantization: Any = importlib.import_module("torchao.quantization")
    numbers: Any = torch  # whose stubs lack integers of 4 bits
    module = LinearGru(to_torch(network, setup.dense(width)))
    weights = (
        quantization.Int8WeightOnlyConfig()
        if bits == 8
        else quantization.IntxWeightOnlyConfig(
            weight_dtype=numbers.int4, granularity=quantization.PerAxis(0)
        )
    )
    quantization.quantize_(module, weights)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)

    @torch.no_grad()
    def accuracy(split: Split) -> float:
        return float((module(split.x).argmax(-1) == split.y).double().mean())

    return Quantized(bytes=file.tell(), accuracy=accuracy)


class LinearGru(nn.Module):
    """A GRU out of linear layers, of what `to_torch` gives."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        gates, width = state["rnn.weight_hh_l0"].shape
        self.inputs = nn.Linear(state["rnn.weight_ih_l0"].shape[1], gates)
        self.recurrent = nn.Linear(width, gates, bias=False)
        self.readout = nn.Linear(width, len(state["readout.bias"]))
        self.load_state_dict(
            {
                "inputs.weight": state["rnn.weight_ih_l0"],
                "inputs.bias": state["rnn.bias_ih_l0"],
                "recurrent.weight": state["rnn.weight_hh_l0"],
                "readout.weight": state["readout.weight"],
                "readout.bias": state["readout.bias"],
            }
        )

    def forward(self, x: Tensor) -> Tensor:
        """`[B, T, features]` -> `[B, classes]`."""
        state = x.new_zeros(len(x), self.recurrent.in_features)
        for projected in self.inputs(x).unbind(1):
            reset, carry, inner = projected.chunk(3, -1)
            had_reset, had_carry, had = self.recurrent(state).chunk(3, -1)
            candidate = (inner + (reset + had_reset).sigmoid() * had).tanh()
            state = torch.lerp(candidate, state, (carry + had_carry).sigmoid())
        return self.readout(state)


LIBRARIES: Mapping[str, tuple[str, int, Quantize]] = {
    "onnxruntime quantize_dynamic": ("onnxruntime", 8, dynamically),
    "torchao int8": ("torchao", 8, lambda *given: by_torchao(*given, bits=8)),
    "torchao int4": ("torchao", 4, lambda *given: by_torchao(*given, bits=4)),
}
"""The module that has to be installed, the bits, and what is done."""


@cache
def _bytes(name: str, setup: Setup, width: int) -> int:
    return LIBRARIES[name][2](setup.dense(width).build(seed=0), setup, width).bytes


def judge_libraries(
    runs: Runs, setup: Setup, seed: int, sizes: Sequence[int] = SIZES
) -> Iterator[Run]:
    """Train the widest dense networks that fit with the seed, quantize, and test."""
    started = Started(setup, seed)
    for name, (module, bits, quantize) in LIBRARIES.items():
        if importlib.util.find_spec(module) is None:
            continue
        for size in sizes:
            limit = size * KILOBYTE
            # torchao refuses a network of width 1.
            width = largest(
                ORIGINAL_WIDTH,
                lambda n: n > 1 and _bytes(name, setup, n) <= limit,  # noqa: B023
            )
            if width is None or any(
                (run.family, run.seed) == (name, seed) for run in runs.of(setup.name, size, "after")
            ):
                continue
            dense = Candidate(family=DENSE, bits=32, width=width)
            full = next(
                one
                for one in finalists(runs, setup.name, size)
                if one.is_dense and one.bits == dense.bits
            )
            rate = runs.rate_of(setup.name, size, full)
            found = trained(started, dense, size=size, stage="tune", rate=rate)
            made = quantize(found.network, setup, width)
            yield runs.add(
                replace(
                    found.run,
                    stage="after",
                    family=name,
                    bits=bits,
                    bytes=made.bytes,
                    validation=made.accuracy(started.splits.validation),
                    test=made.accuracy(started.splits.test),
                )
            )
