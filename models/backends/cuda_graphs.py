"""Functions of many small operations on a GPU, captured in CUDA graphs and replayed.

A loop over the steps of a sequence launches a few kernels per step, and the launches cost more than
the kernels do. A graph launches them all at once. It is bound to its tensors: inputs are copied
into the graph's own, and outputs out of them.

Note [A backward pass of its own]
What a graph's forward pass leaves for its backward pass lies in the graph's own memory, which the
next replay overwrites: two layers of equal shape would spoil each other's gradients. The backward
graph therefore runs the forward pass again, and nothing is left between two replays.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_log = logging.getLogger(__name__)

KEPT = 16
"""Graphs that are kept at a time; each holds its own copy of all that is computed within."""

_WARM_UPS = 2

Function: TypeAlias = Callable[..., tuple[Tensor, ...]]


class Recording(Protocol):
    """Work that was recorded with the tensors that it reads and writes."""

    def replay(self) -> None:
        """Do it again, on the same tensors."""
        ...


Record: TypeAlias = Callable[
    [Callable[[], tuple[Tensor, ...]]], tuple[Recording, tuple[Tensor, ...]]
]
"""Records a call; gives the recording and the tensors in which each replay leaves its results."""


def can_be_used(device: torch.device) -> bool:
    """Whether graphs can be captured now: on a GPU, and within no other capture or autocast."""
    return (
        device.type == "cuda"
        # Tensors of nothing but sizes may be of a GPU that is not here.
        and torch.cuda.is_available()
        and not torch.is_autocast_enabled("cuda")
        and not torch.cuda.is_current_stream_capturing()
    )


def run(name: Hashable, function: Function, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What a function makes of tensors on the current GPU, as a graph from its second call on.

    Differentiable once. Where no graph can be captured the function itself is called, with one line
    of log.

    Args:
        name: what the function computes: functions of one name do the same with equal shapes.
        function: takes the tensors, and depends on nothing else; its work is all on the GPU.
        tensors: all of one device.
    """
    return _graphs.run(name, function, tensors)


def capture(
    call: Callable[[], tuple[Tensor, ...]],
) -> tuple[Recording, tuple[Tensor, ...]]:
    """Record a call in a CUDA graph, after warming up on a stream of its own.

    Raises:
        RuntimeError: the call does something that no graph can hold.
    """
    stream, current = torch.cuda.Stream(), torch.cuda.current_stream()
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            call()
    current.wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = call()
    return graph, outputs


class Graphs:
    """Recordings by what they compute, of which the latest used are kept."""

    def __init__(self, record: Record = capture, *, kept: int = KEPT) -> None:
        """`record` makes recordings; `kept` is how many stay."""
        self._record = record
        self._kept = kept
        self._lock = threading.Lock()
        self._known: OrderedDict[Hashable, _Replayable | Literal["seen", "failed"]] = OrderedDict()

    def run(
        self, name: Hashable, function: Function, tensors: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """See the module's function of that name."""
        learns = torch.is_grad_enabled()
        wanted = tuple(learns and tensor.requires_grad for tensor in tensors)
        replayable = self._find(name, function, tensors, wanted)
        if replayable is None:
            return function(*tensors)
        if not any(wanted):
            return replayable.outputs_of(tensors)
        apply = cast(Any, _Replay).apply
        return apply(replayable, *tensors)

    def _find(
        self, name: Hashable, function: Function, tensors: Sequence[Tensor], wanted: Sequence[bool]
    ) -> "_Replayable | None":
        """None where the function itself has to be called."""
        key = (name, tuple(wanted), *_circumstances(tensors))
        with self._lock:
            known = self._known.get(key)
            if known is None:
                # A shape that comes once, like an epoch's last batch, is not worth a capture.
                self._known[key] = "seen"
            elif known == "seen":
                self._known[key] = self._recorded(function, tensors, wanted) or "failed"
            self._known.move_to_end(key)
            while len(self._known) > self._kept:
                self._known.popitem(last=False)
            found = self._known[key]
        return found if isinstance(found, _Replayable) else None

    def _recorded(
        self, function: Function, tensors: Sequence[Tensor], wanted: Sequence[bool]
    ) -> "_Replayable | None":
        try:
            # Static tensors outlive the inference mode of the first call.
            with torch.inference_mode(mode=False), torch.no_grad():
                return _recorded(function, tensors, wanted, self._record)
        except RuntimeError as error:
            first = str(error).partition("\n")[0]
            _log.warning("no CUDA graph of a sequence, its steps run one by one: %s", first)
            return None


def _circumstances(tensors: Sequence[Tensor]) -> tuple[Hashable, ...]:
    """What a recording is bound to, beside what it computes."""
    device = tensors[0].device
    stream = torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else 0
    shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in tensors)
    return device, stream, shapes, torch.get_float32_matmul_precision()


@dataclass(frozen=True, eq=False)
class _Backward:
    """See Note [A backward pass of its own]."""

    recording: Recording
    incoming: Sequence[Tensor]
    gradients: Sequence[Tensor]


@dataclass(frozen=True, eq=False)
class _Replayable:
    """A function recorded over tensors of its own."""

    forward: Recording
    inputs: Sequence[Tensor]
    outputs: Sequence[Tensor]
    wanted: Sequence[bool]
    backward: _Backward | None
    lock: threading.Lock

    @torch.no_grad()
    def outputs_of(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """What the function makes of these."""
        with self.lock:
            self._take(tensors)
            self.forward.replay()
            return _clones(self.outputs)

    @torch.no_grad()
    def gradients_of(
        self, tensors: Sequence[Tensor], incoming: Sequence[Tensor]
    ) -> tuple[Tensor | None, ...]:
        """What reaches these when `incoming` reaches the outputs; None where it is not wanted."""
        backward = self.backward
        assert backward is not None
        with self.lock:
            self._take(tensors)
            _copy(backward.incoming, incoming)
            backward.recording.replay()
            found = iter(_clones(backward.gradients))
        return tuple(next(found) if want else None for want in self.wanted)

    def _take(self, tensors: Sequence[Tensor]) -> None:
        _copy(self.inputs, tensors)


def _copy(into: Sequence[Tensor], tensors: Sequence[Tensor]) -> None:
    """In a launch for all of one type."""
    torch._foreach_copy_(list(into), list(tensors))  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage] -- as torch.optim does


def _clones(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    clones = tuple(map(torch.empty_like, tensors))
    _copy(clones, tensors)
    return clones


def _recorded(
    function: Function, tensors: Sequence[Tensor], wanted: Sequence[bool], record: Record
) -> _Replayable:
    inputs = [tensor.detach().clone(memory_format=torch.contiguous_format) for tensor in tensors]
    forward, outputs = record(lambda: function(*inputs))
    backward = None
    if any(wanted):
        for static, want in zip(inputs, wanted, strict=True):
            static.requires_grad_(want)
        learning = [static for static, want in zip(inputs, wanted, strict=True) if want]
        incoming = [torch.zeros_like(output) for output in outputs]

        def gradients() -> tuple[Tensor, ...]:
            with torch.enable_grad():
                results = function(*inputs)
            return torch.autograd.grad(results, learning, incoming, materialize_grads=True)

        recording, found = record(gradients)
        backward = _Backward(recording, incoming, found)
    return _Replayable(forward, inputs, outputs, wanted, backward, threading.Lock())


class _Replay(torch.autograd.Function):
    """A recorded function for autograd."""

    @staticmethod
    def forward(ctx: Any, replayable: _Replayable, *tensors: Tensor) -> tuple[Tensor, ...]:  # pyright: ignore[reportIncompatibleMethodOverride] -- torch's own signature is open
        ctx.replayable = replayable
        ctx.save_for_backward(*tensors)
        return replayable.outputs_of(tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride] -- as above
        return None, *ctx.replayable.gradients_of(ctx.saved_tensors, incoming)


_graphs = Graphs()
