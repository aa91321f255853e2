"""What a weight is when it is applied: G matrices, as operations and kernels take them.

Whatever a parametrization stores, it reaches the networks as one of these. They are made once per
forward pass, are differentiable, and hold what every step of a sequence needs, so that a step is a
few matrix products whatever the parametrization.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from typing import ClassVar, NamedTuple, TypeAlias

from torch import Tensor


def factored_form_pays(rank: int, size: int) -> bool:
    """Whether products through diagonal + rank d beat an n x n one: `2 d + 32 <= n`.

    The measured crossover of training and inference with our kernels on CPUs
    (tests/benchmarks/forms.py): the two thin products cost as much as a dense one that is 32
    columns narrower, whatever n is.
    """
    return 2 * rank + 32 <= size


class Whole(NamedTuple):
    """Matrices as a whole, for kernels and writers of files."""

    weight: Tensor
    """[G, out, in]"""


class Thin(NamedTuple):
    """`W_g = L_g R_g + diag(D_g)` as its parts, for kernels and writers of files."""

    left: Tensor
    """L [G, out, d]"""
    right: Tensor
    """R [G / s, d, in]; each R serves s consecutive matrices"""
    diagonal: Tensor | None
    """D [G, out]"""

    @property
    def shared_by(self) -> int:
        """How many matrices read through one R."""
        return self.left.shape[0] // self.right.shape[0]


class Turns(NamedTuple):
    """`W_g = U_g diag(D_g) V_g^T` of packed rotations, for kernels."""

    u: Tensor
    """Signed angles of U [G, K_u, n]"""
    diagonal: Tensor | None
    """D [G, n]"""
    v: Tensor | None
    """Signed angles of V [G, K_v, n]"""


class Fourier(NamedTuple):
    """Unitary matrices of Fourier transforms, see `FourierForm`, for kernels."""

    phases: Tensor
    """Of the diagonals [G, 3, n]"""
    reflections: Tensor
    """Vectors of any length [G, 2, 2 n]; 0 is the identity"""
    order: Tensor
    """The permutation, int64 [n]"""


Matrices: TypeAlias = Whole | Thin | Turns
"""Real matrices, for all cells and stacks."""


class Form(ABC):
    """G matrices W_g of shape [out, in], ready to be applied step by step."""

    name: ClassVar[str]
    """What records and errors call it."""

    replayable: ClassVar[bool] = True
    """Whether applying it does nothing but compute, so that it can be recorded and replayed."""

    @abstractmethod
    def matmul(self, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`x W_g^T + addend_g` for each g, as G tensors `[B, out]`; with a `bias` that, too.

        Args:
            x: `[B, in]`.
            addend: one of those that `addends` gives; None for none.
        """

    def unwatched(self) -> "Form":
        """The same matrices, whose products nobody takes note of."""
        return self

    @abstractmethod
    def matmul_each(self, x: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`x_g W_g^T + addends_g` for each g; x is `[G, B, in]`, addends `[G, B, out]` or a 0."""

    @abstractmethod
    def addends(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Cut input projections `[T, B, G*out]` into the T addends that `matmul` takes."""

    @abstractmethod
    def select(self, start: int, stop: int) -> "Form":
        """The matrices start..stop-1 of the stack."""

    @abstractmethod
    def split(self, size: int) -> "Sequence[Form]":
        """The whole stack in parts of `size` matrices, the first ones first.

        Unlike `select` in a loop, whose backward pass is quadratic in the number of parts: each
        pads its gradient to the whole stack.
        """

    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """All that it is made of, in an order of its own."""

    @abstractmethod
    def rebuild(self, tensors: Sequence[Tensor]) -> "Form":
        """The same form of other tensors, in the order of `tensors`."""

    @abstractmethod
    def multiply_adds(self) -> int:
        """Multiply-adds of applying all G matrices to one vector."""

    def matmul_through(
        self,
        x: Tensor,  # noqa: ARG002 -- see LowRankForm
        middle: Callable[[Tensor], Tensor],  # noqa: ARG002
    ) -> tuple[Tensor, ...]:
        """As `matmul`, with a function of what stands between two thin matrices.

        Raises:
            TypeError: nothing stands between the matrices of this form.
        """
        raise TypeError(f"{self.name} matrices have no narrow middle; low_rank ones have")

    def structure(self) -> Hashable:
        """What a form is beside its tensors: equal for forms that `rebuild` makes of each other."""
        return type(self), len(self.tensors())

    def parts(self) -> Matrices | Fourier | None:
        """What kernels and files can be given in its place; None where there is nothing.

        This is how a new form of whole or thin matrices, or of rotations, gets all kernels; one of
        Fourier transforms gets the uRNN's. One with none of them runs by `matmul` alone. What
        takes them takes `bias`, too.
        """
        return None

    def bias(self) -> Tensor | None:
        """What is added to each matrix's product, `[G, out]`, where there is something."""
        return None

    def whole(self) -> Tensor:
        """The matrices themselves, `[G, out, in]`, for those who need nothing less.

        Raises:
            TypeError: there are none, since another one is applied to each vector.
        """
        raise TypeError(f"{self.name} matrices differ from vector to vector")

    def for_loop(self) -> "Form":
        """The form in which a loop of torch's operations applies the same matrices again and again.

        What a form makes anew for each product, this one has made once.
        """
        return self

    def for_inference(self) -> "Form":
        """The form in which the same matrices answer fastest."""
        return self


def addends_of_each(projections: Tensor, num_matrices: int) -> tuple[Tensor, ...]:
    """Cut input projections `[T, B, G*out]` into T addends `[G, B, out]`."""
    steps, batch, width = projections.shape
    by_copy = projections.view(steps, batch, num_matrices, width // num_matrices)
    return by_copy.transpose(1, 2).unbind(0)
