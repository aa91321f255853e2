"""What stands around a network: how raw samples become its input, and what its output means.

An `Interface` is a document. A task writes it, a checkpoint holds it, and files that run elsewhere
carry it out: a user of such a file gives it a raw row and gets an answer. The methods here are
its definition, in torch; each format of file has its own writer of every step and answer.
"""

from abc import abstractmethod
from typing import Annotated, ClassVar, Literal, Self, TypeAlias, get_args

import torch
from pydantic import Field
from torch import Tensor

from models.spec import Spec


class InputStep(Spec):
    """Something done to raw samples before the network reads them."""

    whole_sample: ClassVar[bool] = False
    """Whether it needs a sample as a whole: a stream, which comes step by step, goes without."""
    reads_tokens: ClassVar[bool] = False
    """Whether it reads whole numbers `[B, T]`."""

    reads_tokens: ClassVar[bool] = False
    """Whether it is given whole numbers."""

    @abstractmethod
    def apply(self, x: Tensor) -> Tensor:
        """A batch `[B, ...]` of raw numbers of single precision, one step further."""

    @abstractmethod
    def undo(self, x: Tensor) -> Tensor:
        """Numbers to try it with, of which `apply` makes about x."""


class Divide(InputStep):
    """All numbers by one: pixels of 0..255 become 0..1."""

    kind: Literal["divide"] = "divide"
    by: float = Field(gt=0)

    def apply(self, x: Tensor) -> Tensor:
        """`[B, ...]`, divided."""
        return x / self.by

    def undo(self, x: Tensor) -> Tensor:
        """`[B, ...]`, multiplied."""
        return x * self.by


class Reorder(InputStep):
    """The numbers of a flat sample in another order: of a permuted image, say."""

    whole_sample: ClassVar[bool] = True

    kind: Literal["reorder"] = "reorder"
    order: tuple[int, ...]

    def apply(self, x: Tensor) -> Tensor:
        """`[B, N]` -> `[B, N]`: place i gets the number at `order[i]`."""
        return x[:, torch.tensor(self.order, device=x.device)]

    def undo(self, x: Tensor) -> Tensor:
        """`[B, N]` in the order they had; 0 where the order names no number."""
        size = len(self.order)
        raw = x.new_zeros(len(x), max(size, max(self.order) + 1))
        raw[:, list(self.order)] = torch.nn.functional.pad(x, (0, size - x.shape[1]))
        return raw


class Layout(InputStep):
    """A flat sample in steps; what stands behind the last step is cut off."""

    whole_sample: ClassVar[bool] = True

    kind: Literal["layout"] = "layout"
    steps: int = Field(ge=1)
    features: int = Field(ge=1)

    def apply(self, x: Tensor) -> Tensor:
        """`[B, N]` -> `[B, steps, features]`, N at least `steps * features`."""
        return x[:, : self.steps * self.features].reshape(-1, self.steps, self.features)

    def undo(self, x: Tensor) -> Tensor:
        """`[B, steps, features]` -> `[B, steps * features]`."""
        return x.flatten(1)


class OneHot(InputStep):
    """Tokens as one-hot numbers, for a network without an embedding of its own."""

    reads_tokens: ClassVar[bool] = True

    kind: Literal["one_hot"] = "one_hot"
    symbols: int = Field(ge=1, description="how many there are")

    def apply(self, x: Tensor) -> Tensor:
        """`[B, T]` int64 -> `[B, T, symbols]`."""
        return torch.nn.functional.one_hot(x, self.symbols).float()

    def undo(self, x: Tensor) -> Tensor:
        """`[B, T, symbols]` -> `[B, T]`: the places of the largest numbers."""
        return x.argmax(dim=-1)


_ONE_IN = 10
"""So often a number is missing, where that is tried."""


class FillMissing(InputStep):
    """A number for each missing one, which is NaN, of a feature."""

    kind: Literal["fill_missing"] = "fill_missing"
    values: tuple[float, ...] = Field(description="by feature")

    def apply(self, x: Tensor) -> Tensor:
        """`[B, T, F]`."""
        return torch.where(x.isnan(), x.new_tensor(self.values), x)

    def undo(self, x: Tensor) -> Tensor:
        """The same, but that every tenth number is missing."""
        places = torch.arange(x.numel(), device=x.device).view(x.shape) % _ONE_IN == 0
        return x.masked_fill(places, torch.nan)


class Standardise(InputStep):
    """Each feature less its mean, by its deviation.

    Means are taken off in two parts of single precision: of numbers far from 0 nothing is lost.
    """

    kind: Literal["standardise"] = "standardise"
    means: tuple[float, ...] = Field(description="by feature")
    deviations: tuple[float, ...] = Field(description="by feature")

    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """The means' high and low parts, and the deviations, `[F]` of single precision."""
        means = torch.tensor(self.means, dtype=torch.float64)
        high = means.float()
        low = (means - high.double()).float()
        return high, low, torch.tensor(self.deviations, dtype=torch.float64).float()

    def apply(self, x: Tensor) -> Tensor:
        """`[B, T, F]`, scaled."""
        high, low, deviations = (part.to(x.device) for part in self.parts())
        return ((x - high) - low) / deviations

    def undo(self, x: Tensor) -> Tensor:
        """`[B, T, F]` in the data's own unit."""
        exact = x.double()
        means, deviations = (exact.new_tensor(part) for part in (self.means, self.deviations))
        return (exact * deviations + means).to(x.dtype)


_Steps: TypeAlias = Divide | Reorder | Layout | OneHot | FillMissing | Standardise
AnyInputStep: TypeAlias = Annotated[_Steps, Field(discriminator="kind")]

INPUT_STEPS: tuple[type[_Steps], ...] = get_args(_Steps)
"""The union's classes; each format of file has a writer for each."""


class Answer(Spec):
    """What a network's output says about a sample."""

    decides: ClassVar[bool] = False
    """Whether it names something, beside numbers."""
    each: ClassVar[bool] = False
    """Whether it decides about each name on its own."""

    @property
    def names(self) -> tuple[str, ...]:
        """What the places of `label` stand for; none where there are no names."""
        return ()

    def numbers(self, output: Tensor) -> Tensor:
        """The answer in numbers `[B, ..., out]`, of the network's output."""
        return output

    def spread(self, difference: Tensor) -> Tensor:
        """How far numbers may be apart, of outputs that are `difference` apart."""
        return difference

    def label(self, output: Tensor) -> Tensor | None:
        """What was decided, int64; None where nothing is."""
        del output
        return None

    def tied(self, output: Tensor, difference: Tensor) -> Tensor:
        """Where another output by `difference` at most would decide otherwise."""
        del output, difference
        raise TypeError(f"{type(self).__name__} decides nothing")

    def output(self, numbers: Tensor) -> Tensor:
        """The network's output of an answer in numbers: what a task's metrics are computed of."""
        return numbers

    def target(self, right: Tensor) -> Tensor:
        """What the network's output should be, of what the answer should be."""
        return right

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many outputs the network has, as often as the answer tells."""
        return (len(self.names),) if self.names else ()

    def unnamed(self) -> Self:
        """The same without its names."""
        return self


class Classes(Answer):
    """One of several: the largest logit."""

    kind: Literal["classes"] = "classes"
    decides: ClassVar[bool] = True
    classes: tuple[str, ...] = Field(
        description="the classes' own names, in the outputs' order; none: their numbers stand for "
        "them"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The classes."""
        return self.classes

    def label(self, output: Tensor) -> Tensor:
        """`[B, ..., C]` -> `[B, ...]`: the first of the largest; -1 where one is no number."""
        return output.argmax(dim=-1).where(~output.isnan().any(dim=-1), -1)

    def tied(self, output: Tensor, difference: Tensor) -> Tensor:
        """Where the two largest logits are as near as that."""
        if output.shape[-1] == 1:
            return torch.zeros_like(output[..., 0], dtype=torch.bool)
        first, second = output.topk(2, dim=-1).values.unbind(-1)
        return first - second <= difference[..., 0]

    def unnamed(self) -> Self:
        """Classes by number."""
        return self.model_copy(update={"classes": ()})


class Labels(Answer):
    """Any of several: each one whose probability is above one half."""

    kind: Literal["labels"] = "labels"
    decides: ClassVar[bool] = True
    each: ClassVar[bool] = True
    labels: tuple[str, ...] = Field(
        description="the labels' own names, in the outputs' order; none: their numbers stand for "
        "them"
    )

    @property
    def names(self) -> tuple[str, ...]:
        """The labels."""
        return self.labels

    def numbers(self, output: Tensor) -> Tensor:
        """Probabilities `[B, ..., L]`."""
        return output.sigmoid()

    def label(self, output: Tensor) -> Tensor:
        """`[B, ..., L]` of 0 and 1; -1 where there is no number."""
        return (output > 0).to(torch.int64).where(~output.isnan(), -1)

    def tied(self, output: Tensor, difference: Tensor) -> Tensor:
        """Where a logit is as near to 0 as that."""
        return output.abs() <= difference

    def output(self, numbers: Tensor) -> Tensor:
        """Logits `[B, ..., L]`; those of what single precision rounds to 0 or 1 are finite."""
        least = torch.finfo(torch.float32).eps / 2
        return numbers.clamp(least, 1 - least).logit()

    def unnamed(self) -> Self:
        """Labels by number."""
        return self.model_copy(update={"labels": ()})


class Numbers(Answer):
    """Numbers, in their own unit."""

    kind: Literal["numbers"] = "numbers"
    means: tuple[float, ...] = Field(default=(), description="by output; empty: all 0")
    deviations: tuple[float, ...] = Field(default=(), description="by output; empty: all 1")

    def numbers(self, output: Tensor) -> Tensor:
        """`[B, ..., out]` times the deviations plus the means."""
        if not self.means:
            return output
        means = output.new_tensor(self.means)
        return output * output.new_tensor(self.deviations) + means

    def spread(self, difference: Tensor) -> Tensor:
        """The same in the numbers' own unit, and the rounding of large ones."""
        if not self.means:
            return difference
        means, deviations = (difference.new_tensor(part) for part in (self.means, self.deviations))
        return difference * deviations + torch.finfo(torch.float32).eps * means.abs()

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many outputs have means and deviations."""
        return (len(self.means), len(self.deviations)) if self.means or self.deviations else ()

    def output(self, numbers: Tensor) -> Tensor:
        """`[B, ..., out]` less the means, by the deviations."""
        if not self.means:
            return numbers
        return (numbers - numbers.new_tensor(self.means)) / numbers.new_tensor(self.deviations)

    def target(self, right: Tensor) -> Tensor:
        """As the output."""
        return self.output(right)


_Answers: TypeAlias = Classes | Labels | Numbers
AnyAnswer: TypeAlias = Annotated[_Answers, Field(discriminator="kind")]

ANSWERS: tuple[type[_Answers], ...] = get_args(_Answers)
"""The union's classes; each format of file has a writer for each."""


class Interface(Spec):
    """From a raw sample to an answer."""

    sample: tuple[int | Literal["steps"], ...] = Field(
        description="shape of one raw sample; `steps` is as many as it has. Tokens are `[steps]`, "
        "whole numbers"
    )
    inputs: tuple[AnyInputStep, ...] = Field(default=(), description="one after the other")
    answer: AnyAnswer
    padded: bool = Field(
        default=False,
        description="samples have lengths of their own: 0 stands behind the last step, after all "
        "steps of the input too, and the network is told the lengths",
    )
    metric: str | None = Field(default=None, description="what the task judges answers by")

    @property
    def tokens(self) -> bool:
        """Whether raw samples are tokens."""
        return not self.features or any(step.reads_tokens for step in self.inputs[:1])

    @property
    def features(self) -> bool:
        """Whether the network reads numbers `[B, T, F]`; else tokens `[B, T]`."""
        return bool(self.inputs) or len(self.sample) > 1

    def raw(self, x: Tensor) -> Tensor:
        """Samples `[B, *sample]` to try a file with, of which `preprocess` makes about x."""
        for step in reversed(self.inputs):
            x = step.undo(x)
        return x

    def preprocess(self, x: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Raw samples `[B, *sample]` as the network reads them.

        Args:
            x: numbers of single precision, or tokens.
            lengths: steps of each sample, `[B]`, where they are padded.
        """
        for step in self.inputs:
            x = step.apply(x)
        if lengths is None:
            return x
        valid = torch.arange(x.shape[1], device=x.device) < lengths.unsqueeze(1)
        return torch.where(valid.view(*valid.shape, *[1] * (x.ndim - 2)), x, x.new_zeros(()))
