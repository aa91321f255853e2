"""Matrices whose products have a bias of their own."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.forms.form import Form, Fourier, Matrices


@dataclass(frozen=True, eq=False)
class BiasedForm(Form):
    """`W_g x + b_g`: the second bias of torch's cells, which acts on the state's side."""

    inner: Form
    own_bias: Tensor
    """[G, out]"""

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] -- not its own
        """That of the matrices."""
        return self.inner.name

    def select(self, start: int, stop: int) -> "BiasedForm":
        """The matrices start..stop-1 of the stack, with their biases."""
        return BiasedForm(self.inner.select(start, stop), self.own_bias[start:stop])

    def split(self, size: int) -> "list[BiasedForm]":
        """The whole stack in parts of `size` matrices, with their biases."""
        parts = zip(self.inner.split(size), torch.split(self.own_bias, size), strict=True)
        return [BiasedForm(inner, bias) for inner, bias in parts]

    def addends(self, projections: Tensor) -> tuple[Tensor, ...]:
        """As the matrices take them, with the biases: a step then adds nothing more."""
        return self.inner.addends(projections + self.own_bias.flatten())

    def matmul(self, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`x W_g^T + b_g + addend_g` for each g; `addend` as `addends` gives it."""
        if addend is not None:
            return self.inner.matmul(x, addend)
        products = self.inner.matmul(x)
        return tuple(y + b for y, b in zip(products, self.own_bias.unbind(0), strict=True))

    def matmul_each(self, x: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`x_g W_g^T + b_g + addends_g` for each g."""
        shape = (*x.shape[:2], self.own_bias.shape[-1])
        return self.inner.matmul_each(x, (addends + self.own_bias.unsqueeze(1)).expand(shape))

    def tensors(self) -> tuple[Tensor, ...]:
        """The biases, then what the matrices are made of."""
        return (self.own_bias, *self.inner.tensors())

    def rebuild(self, tensors: Sequence[Tensor]) -> "BiasedForm":
        """Of other biases and matrices."""
        bias, *inner = tensors
        return BiasedForm(self.inner.rebuild(inner), bias)

    def multiply_adds(self) -> int:
        """Those of the matrices."""
        return self.inner.multiply_adds()

    def parts(self) -> Matrices | Fourier | None:
        """Those of the matrices; a caller that takes them takes the bias, too."""
        return self.inner.parts()

    def bias(self) -> Tensor:
        """What is added to each product, `[G, out]`."""
        return self.own_bias

    def for_loop(self) -> "BiasedForm":
        """The same biases of the matrices as they are applied again and again."""
        return BiasedForm(self.inner.for_loop(), self.own_bias)

    def structure(self) -> Hashable:
        """With that of the matrices."""
        return BiasedForm, self.inner.structure()
