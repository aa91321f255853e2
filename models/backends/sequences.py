"""One layer's sequence, by whichever backend computes it fastest.

The backends: `cpp`, our kernels on the CPU; `triton`, those on GPUs; `vendor`, torch's own
recurrent kernels, for dense matrices; `torch`, a loop over the steps in torch's operations;
`graph`, that loop in CUDA graphs.
"""

import functools
import logging
from collections.abc import Callable

import torch
from torch import Tensor

from models.backends.call import SequenceBackend, SequenceCall, State
from models.backends.cpp import CppKernels
from models.backends.torch_loop import GraphedLoop, TorchLoop
from models.backends.triton.backend import TritonKernels
from models.backends.unitary import UnitaryKernel
from models.backends.vendor import VendorKernels
from models.forms import Whole
from models.kernels.calls import Packed
from models.kernels.choice import Backend, wanted_backend

_log = logging.getLogger(__name__)

VENDOR_LSTM_BATCH = 8
VENDOR_LSTM_SIZE = 384

CPP, UNITARY, VENDOR = CppKernels(), UnitaryKernel(), VendorKernels()
GRAPH, TORCH, TRITON = GraphedLoop(), TorchLoop(), TritonKernels()


def run_sequence(call: SequenceCall) -> tuple[Tensor, State]:
    """Run a cell over all steps.

    Returns:
        All h `[T, B, n]` (without `call.return_sequences` nothing of use), and the last state.

    Raises:
        ValueError: `REFLECTORY_BACKEND` in the environment names no backend.
    """
    backend = CPP if call.packed else _chosen(call)
    if backend is TORCH and not torch.compiler.is_compiling() and wanted_backend() is None:
        _say_slowest(_described(call))
    return backend.run(call)


@torch.no_grad()
def pack(call: SequenceCall) -> Packed | None:
    """Matrices in the kernels' own order, for many runs without gradients.

    None where the kernels do not run. Of the inputs and the state only sizes matter.
    """
    return CPP.pack(call) if _chosen(call) is CPP else None


def choose(call: SequenceCall) -> Backend:
    """The backend that runs a sequence; `REFLECTORY_BACKEND` in the environment names another.

    What is named there is taken wherever it computes the same, see `computing`.

    Raises:
        ValueError: the environment names no backend.
    """
    return _chosen(call).name


def computing(call: SequenceCall) -> tuple[Backend, ...]:
    """The backends that compute a sequence, the fastest first; of states only sizes count.

    Whether gradients are kept decides, too: it has to be asked as the sequence will be run.
    """
    return tuple(backend.name for backend in _computing(call))


def vendor_trains_lstm(batch_size: int, size: int) -> bool:
    """Whether torch's own kernel trains a dense LSTM faster than ours, see Note [Which backend]."""
    return batch_size <= VENDOR_LSTM_BATCH or size >= VENDOR_LSTM_SIZE


def _on_a_gpu(call: SequenceCall) -> bool:
    return call.state.device.type == "cuda"


def _trains_a_dense_lstm(call: SequenceCall) -> bool:
    if call.kind is None or call.kind.cell != "lstm" or not isinstance(call.form.parts(), Whole):
        return False
    return vendor_trains_lstm(*call.state.shape) and call.learns()


def _anything(_: SequenceCall) -> bool:
    return True


# Note [Which backend]
# Measured in fp32 with one thread (tests/benchmarks): our kernels take 0.2 to 0.6 of torch.nn's
# time for every RNN and GRU, and less for low rank. A dense LSTM is oneDNN's own ground: inference
# is a draw; training takes us 0.8 to 1.3 of its time for few samples or from n = 384 on, whose
# matrices no inner cache holds, and 0.4 to 1.1 else. On an H100 (deploy/docs/benchmarks/gpu.md)
# cuDNN has what it computes, which is dense, but for stacks: ours take 1.1 to 1.8 of its time at
# n = 128. Ours have what else fits, see Note [What fits]: low rank takes 0.2 to 0.8 of dense from
# n = 256 on. Then comes the loop as a graph, which saves the launches: 1.6 to 3.5 of dense.
_FASTEST_FIRST: tuple[tuple[Callable[[SequenceCall], bool], tuple[SequenceBackend, ...]], ...] = (
    (_on_a_gpu, (VENDOR, TRITON, GRAPH, TORCH)),
    (_trains_a_dense_lstm, (VENDOR, CPP, TORCH)),
    (_anything, (CPP, UNITARY, VENDOR, TORCH)),
)


def _computing(call: SequenceCall) -> tuple[SequenceBackend, ...]:
    return tuple(backend for backend in _order(call) if backend.takes(call))


def _order(call: SequenceCall) -> tuple[SequenceBackend, ...]:
    return next(order for applies, order in _FASTEST_FIRST if applies(call))


def _chosen(call: SequenceCall) -> SequenceBackend:
    wanted = wanted_backend()
    if wanted is None:
        return next(backend for backend in _order(call) if backend.takes(call))
    allowed = _computing(call)
    return next((backend for backend in allowed if backend.name == wanted), allowed[0])


def _described(call: SequenceCall) -> str:
    cell = type(call.loop).__name__ if call.kind is None else call.kind.cell
    state = call.state
    return f"{cell} with {call.form.name} matrices, {state.dtype} on {state.device.type}"


@functools.cache
def _say_slowest(what: str) -> None:
    """Say it once in a process."""
    _log.info("%s runs step by step in torch's operations: no kernel here computes it", what)
