"""What every architecture offers."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self

import torch

from models.network import Network
from models.parameter_sampler import ParameterSampler
from models.parametrizations import Parametrization
from models.spec import Signature, Slot, Spec


class Architecture(Spec, ABC):
    """How layers are joined, and which of their matrices (slots) a parametrization stores.

    A variant is one file with its fields, search space, counts and module, and one name in the
    union of this package. Its `kind` tells it apart.
    """

    title: ClassVar[str]
    paper: ClassVar[str]
    compiled: ClassVar[bool] = False
    """Whether kernels compute its layers, at least with its default fields and some family."""
    any_length: ClassVar[bool] = True
    """Whether a model runs at other sequence lengths than its signature's."""

    @property
    def counts_shape_more(self) -> bool:
        """Whether counts and ranks shape buffers or masks too, and not parameters alone.

        Networks that are computed in the same calls then have equal ones.
        """
        return False

    @property
    def masks_steps(self) -> bool:
        """Whether dropout draws a mask for each step, whose shape follows from a batch's length."""
        return False

    @classmethod
    @abstractmethod
    def suggest(cls, sampler: ParameterSampler, signature: Signature) -> Self:
        """Draw the hyperparameters, from ranges that the signature alone decides."""

    def check(self, signature: Signature) -> None:
        """Refuse a task that the architecture cannot answer.

        Raises:
            SignatureError: names what the task asks for.
        """

    @abstractmethod
    def slots(self, signature: Signature) -> Mapping[str, Slot]:
        """The structured matrices by name; the first slot is the main one."""

    @abstractmethod
    def parameter_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """Trainable numbers of the model, by a formula that never falls when a number grows."""

    def paper_count(self, signature: Signature, parametrization: Parametrization) -> int:
        """The count by the convention of the paper that introduced the structured form.

        Unless a variant knows better, structured matrices as their source counts them and all else
        as it is.
        """
        surplus = [
            (stored := parametrization.for_slot(slot)).paper_count(slot)
            - stored.parameter_count(slot)
            for slot in self.slots(signature).values()
        ]
        return self.parameter_count(signature, parametrization) + sum(surplus)

    def state_numbers(self) -> int:
        """Numbers that a model keeps of one sample from a step to the next; 0: it has no state."""
        return 0

    @abstractmethod
    def saved_numbers(self, signature: Signature, *, batch_size: int) -> int:
        """Numbers that a training step keeps of one sample of a batch until its gradient is known.

        Input and answer are not among them. Measured on CPUs with our kernels, see
        tests/benchmarks/memory.py; never less for a larger model.
        """

    @abstractmethod
    def build(
        self,
        signature: Signature,
        parametrization: Parametrization,
        *,
        generator: torch.Generator,
    ) -> Network:
        """A freshly initialised model; its shapes are those of the signature.

        Raises:
            SlotError: the parametrization cannot hold one of the slots.
        """
