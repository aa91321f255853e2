"""One configuration in full: what a trial can be trained from again, number for number."""

from pydantic import Field

from models.draw import Draw
from models.model import ModelSpec
from models.spec import Spec


class TrainingSpec(Spec):
    """How a model is trained.

    Adam, a learning rate that decays per epoch, gradients clipped by norm.
    """

    learning_rate: float = Field(
        default=3e-3, gt=0, le=1, description="Adam's step size in the first epoch"
    )
    batch_size: int = Field(default=64, ge=1, le=65536, description="samples per step")
    decay: float = Field(
        default=1.0, gt=0, le=1, description="factor on the learning rate after each epoch"
    )
    clip_norm: float = Field(
        default=1.0, gt=0, description="gradients are scaled down to this norm"
    )
    weight_decay: float = Field(default=0.0, ge=0, le=1, description="decoupled weight decay")

    @classmethod
    def suggest(cls, draw: Draw) -> "TrainingSpec":
        """Draw the learning rate (log-uniform) and the batch size (by 32)."""
        return cls(
            learning_rate=draw.real("learning_rate", 3e-4, 3e-2, log=True),
            batch_size=draw.integer("batch_size", 32, 128, step=32),
        )


class TrialSpec(Spec):
    """Everything that a trial's numbers follow from, the task and the machine excepted."""

    model: ModelSpec
    training: TrainingSpec
    seed: int = Field(ge=0, description="seeds the initialisation and the order of the data")
