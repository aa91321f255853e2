"""What the structured matrices of a network read of a calibration batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from models.compression.parts import in_evaluation, structured_parts
from models.forms import Form


class Moments:
    """Sums of `x x^T` `[G, in, in]` over the vectors x that each matrix of a stack reads."""

    def __init__(self, num_matrices: int, size: int) -> None:
        self._sums = torch.zeros(num_matrices, size, size, dtype=torch.float64)
        self._counts = torch.zeros(num_matrices, dtype=torch.float64)

    def add(self, start: int, stop: int, vectors: Tensor) -> None:
        """Vectors `[B, in]` that the matrices start..stop-1 read."""
        seen = vectors.detach().to("cpu", torch.float64)
        self._sums[start:stop] += seen.mT @ seen
        self._counts[start:stop] += len(seen)

    def any(self) -> bool:
        """Whether a matrix read anything."""
        return bool(self._counts.any())

    def mean(self) -> Tensor:
        """`E[x x^T]` `[G, in, in]`; 0 for a matrix that read nothing."""
        return self._sums / self._counts.clamp_min(1).view(-1, 1, 1)


@dataclass(frozen=True, eq=False)
class WatchedForm(Form):
    """A form that notes what it is applied to.

    No kernel knows it, so that a network runs as a loop in torch's operations, which applies it
    step by step.
    """

    name: ClassVar[str] = "watched"
    replayable: ClassVar[bool] = False

    inner: Form
    moments: Moments
    start: int
    stop: int

    def select(self, start: int, stop: int) -> "WatchedForm":
        """The matrices start..stop-1 of the stack."""
        first = self.start
        part = self.inner.select(start, stop)
        return WatchedForm(part, self.moments, first + start, first + stop)

    def split(self, size: int) -> "list[WatchedForm]":
        """The whole stack in parts of `size` matrices."""
        return [
            WatchedForm(part, self.moments, first, first + size)
            for part, first in zip(
                self.inner.split(size), range(self.start, self.stop, size), strict=True
            )
        ]

    def unwatched(self) -> Form:
        """The form that is watched."""
        return self.inner

    def addends(self, projections: Tensor) -> tuple[Tensor, ...]:
        """As the form that is watched."""
        return self.inner.addends(projections)

    def matmul(self, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """As the form that is watched."""
        self.moments.add(self.start, self.stop, x)
        return self.inner.matmul(x, addend)

    def matmul_each(self, x: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """As the form that is watched."""
        for place, vectors in enumerate(x):
            self.moments.add(self.start + place, self.start + place + 1, vectors)
        return self.inner.matmul_each(x, addends)

    def for_loop(self) -> "WatchedForm":
        """What is watched, as it is applied again and again."""
        return WatchedForm(self.inner.for_loop(), self.moments, self.start, self.stop)

    def tensors(self) -> tuple[Tensor, ...]:
        """As the form that is watched."""
        return self.inner.tensors()

    def rebuild(self, tensors: Sequence[Tensor]) -> "WatchedForm":
        """The same of other tensors, noted in the same place."""
        return replace(self, inner=self.inner.rebuild(tensors))

    def whole(self) -> Tensor:
        """As the form that is watched."""
        return self.inner.whole()

    def multiply_adds(self) -> int:
        """As the form that is watched."""
        return self.inner.multiply_adds()


@torch.no_grad()
def moments_of(network: nn.Module, batch: Any) -> tuple[dict[str, Tensor], Any]:
    """`E[x x^T]` `[G, in, in]` by the path of each structured matrix, and the network's answer.

    Matrices that read nothing have none. The network runs in evaluation mode and is left as it was;
    a batch that is a tuple is a list of arguments.
    """
    linears = structured_parts(network)
    watched: dict[str, Moments] = {}
    fast = torch.backends.mha.get_fastpath_enabled()
    with in_evaluation(network):
        try:
            # torch's transformers on their fast path take the weights and call no layer.
            torch.backends.mha.set_fastpath_enabled(False)
            for name, linear in linears.items():
                watched[name] = Moments(linear.num_matrices, linear.in_features)
                linear.cached_form = WatchedForm(
                    linear.make_form(), watched[name], 0, linear.num_matrices
                )
            answer = network(*arguments(batch))
        finally:
            torch.backends.mha.set_fastpath_enabled(fast)
            for linear in linears.values():
                linear.clear()
    return {name: moments.mean() for name, moments in watched.items() if moments.any()}, answer


def arguments(batch: Any) -> tuple[Any, ...]:
    """What a module is called with: a tuple is several arguments, all else is one."""
    return cast(tuple[Any, ...], batch) if type(batch) is tuple else (batch,)
