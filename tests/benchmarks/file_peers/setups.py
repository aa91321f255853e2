"""The tasks of the comparison at equal bytes, and what training is given."""

from collections.abc import Mapping
from dataclasses import dataclass

from models.architectures import Gru
from models.model import ModelSpec
from models.parametrizations import Dense, Parametrization
from models.spec import Signature
from search.tasks import Split, Splits
from search.tasks.images.digits import Digits
from search.tasks.images.mnist import Mnist
from tests.benchmarks.peers.runs import samples_of
from tests.benchmarks.peers.settings import Task

SIZES = (2, 4, 8, 16, 32, 64)
"""In units of 1,024 bytes."""
ORIGINAL_WIDTH = 128
"""Of the trained original that everyone learns from. Nobody is wider."""
TUNING_SEED = 0
"""Chooses learning rates and finalists by validation; it takes no part in the verdict."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """A task, and the epochs that every contestant gets."""

    name: str
    task: Task
    train_samples: int
    """The first so many images of the training split, the same for all."""
    validation_samples: int
    epochs: int
    """Of the original, and of the dense network of each width that contestants are made of."""
    fine_tuning: int
    """Of each contestant after it was made of that network."""
    quantised_epochs: int
    """The last ones of these, in which numbers of few bits are rounded in each step."""
    screening: int
    """Epochs in which the tuning seed looks at all configurations, the last half quantised."""
    batch_size: int
    original_rate: float
    rates: tuple[float, ...]
    """Learning rates that finalists try; validation chooses. Screening takes the first."""

    @property
    def signature(self) -> Signature:
        """What the networks read and answer."""
        return self.task.signature()

    def samples(self) -> Splits[Split]:
        """The images of all contestants; the whole test split."""
        found = samples_of(self.task)
        return Splits(
            _first(found.train, self.train_samples),
            _first(found.validation, self.validation_samples),
            found.test,
        )

    def gru(
        self, width: int, parametrization: Parametrization, *, bits: int = 32, inputs: bool = False
    ) -> ModelSpec:
        """A GRU without a trained first state, as torch has it."""
        return ModelSpec.model_validate(
            {
                "architecture": Gru(
                    hidden_size=width,
                    reset="after",
                    learned_initial_state=False,
                    structured_inputs="all" if inputs else "none",
                ),
                "parametrization": parametrization,
                "signature": self.signature,
                "bits": bits,
            }
        )

    def dense(self, width: int) -> ModelSpec:
        """With plain matrices of 32 bits."""
        return self.gru(width, Dense())


def _first(split: Split, count: int) -> Split:
    return Split(split.x[:count], split.y[:count])


SETUPS: Mapping[str, Setup] = {
    setup.name: setup
    for setup in (
        Setup(
            name="digits",
            task=Digits(),
            train_samples=997,
            validation_samples=400,
            epochs=40,
            fine_tuning=30,
            quantised_epochs=20,
            screening=10,
            batch_size=64,
            original_rate=1e-2,
            rates=(1e-2, 2e-2, 4e-2, 8e-2),
        ),
        Setup(
            name="mnist",
            task=Mnist(layout="rows"),
            train_samples=4000,
            validation_samples=2000,
            epochs=12,
            fine_tuning=10,
            quantised_epochs=6,
            screening=4,
            batch_size=100,
            original_rate=1e-2,
            rates=(1e-2, 2e-2, 4e-2, 8e-2),
        ),
    )
}
