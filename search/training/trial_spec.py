"""One configuration in full: what a trial can be trained from again, number for number."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from pydantic import Field, ValidationInfo, field_validator

from models.model import ModelSpec
from models.parameter_sampler import ParameterSampler
from models.spec import Spec, kind_of
from search.graphs.network_trial import NetworkTrial
from search.training.compression import Compression

OptimizerName: TypeAlias = Literal["adam", "rmsprop", "adagrad", "sgd"]
LossName: TypeAlias = Literal["task", "squared_hinge"]


def _is_null(value: object) -> bool:
    """Whether documents leave a field out: those of earlier trials stay what they were."""
    return value is None


def _is_tasks(loss: object) -> bool:
    """The same of the loss."""
    return loss == "task"


def _is_zero(number: object) -> bool:
    """The same of a number."""
    return number == 0


_USUAL_EPS = 1e-8


def _is_usual_eps(eps: object) -> bool:
    """The same of the optimizer's."""
    return eps == _USUAL_EPS


class Plateau(Spec):
    """What becomes of training when the validation metric gets no better."""

    factor: float = Field(
        default=0.5, gt=0, lt=1, description="what the learning rate is multiplied by, each time"
    )
    stale: int = Field(
        default=3,
        ge=1,
        le=100_000,
        description="after so many epochs without a better metric, counted from the best one or "
        "from the last time",
    )
    restore: bool = Field(
        default=True,
        description="whether training goes on from the parameters and the optimizer's state of the "
        "best epoch",
    )
    most: int = Field(
        default=14,
        ge=0,
        le=100_000,
        description="it is done so often at most; where it was to be done once more the trial is "
        "complete",
    )


class TrainingSpec(Spec):
    """How a model is trained.

    A learning rate that decays per epoch; gradients clipped by value, then by norm.
    """

    optimizer: OptimizerName = Field(
        default="adam",
        description="rmsprop averages squared gradients with 0.9 / 0.1, as the uRNN's code does; "
        "sgd has no momentum",
    )
    rmsprop_start: float = Field(
        default=0.0,
        ge=0,
        le=1e6,
        exclude_if=_is_zero,
        description="of rmsprop: where the averages v of squared gradients begin; 1e-3 in the code "
        "of the uRNN and of the low-rank GRU. Trials with another one than 0 are trained alone",
    )
    rmsprop_eps: float = Field(
        default=_USUAL_EPS,
        ge=0,
        le=1,
        exclude_if=_is_usual_eps,
        description="of rmsprop: a step is the rate times g / (sqrt(v) + this). 0, as in the code "
        "of the uRNN, needs a `rmsprop_start` above 0. Trials with another one than 1e-8 are "
        "trained alone",
    )
    learning_rate: float = Field(
        default=3e-3,
        gt=0,
        le=1_000,
        description="the optimizer's step size in the first epoch. Plain sgd on the mean loss of a "
        "word takes 1 to 30 where language models are trained (Merity et al. 2018: 30)",
    )
    batch_size: int = Field(default=64, ge=1, le=65536, description="samples per step")
    decay: float = Field(
        default=1.0, gt=0, le=1, description="factor on the learning rate after each epoch"
    )
    clip_norm: float | None = Field(
        default=1.0,
        gt=0,
        description="gradients are scaled down to this norm, all together; null: they are not",
    )
    clip_value: float | None = Field(
        default=None,
        gt=0,
        description="each component of a gradient is cut to ± this, an infinite one too, before "
        "the norm is taken; null: none is",
    )
    nan_recovery: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="a batch whose loss or gradient's norm is NaN or Inf has this times the "
        "parameters for its gradient, so that they shrink (Miceli Barone: 0.1 for the memory "
        "task, 0.01 for language models); null: such a batch ends the trial as diverged",
    )
    weight_decay: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="each step takes the learning rate times this off every weight, apart from "
        "the gradient, with any optimizer",
    )
    loss: LossName = Field(
        default="task",
        exclude_if=_is_tasks,
        description="what is differentiated: the task's own loss, or squared_hinge, the mean over "
        "samples and classes of max(0, 1 - k y)^2 with k = 1 for the right class and -1 for the "
        "others (Miceli Barone, A.1), of tasks whose targets are classes alone",
    )
    readout_penalty: float = Field(
        default=0.0,
        ge=0,
        le=1000,
        exclude_if=_is_zero,
        description="the loss has this times ||Y||_F / numel(Y) added to it, with the readout's "
        "matrix Y; the norm is not squared (Miceli Barone, A.1: 1e-3)",
    )
    epoch_updates: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        exclude_if=_is_null,
        description="an epoch, after which comes a validation, a report and the decay of the rate, "
        "and which budgets count, is so many steps, and the order of the samples runs on over "
        "passes; such trials are trained alone. Null: an epoch is one pass over the samples",
    )
    plateau: Plateau | None = Field(
        default=None,
        exclude_if=_is_null,
        description="how the learning rate falls when the validation metric gets no better; in "
        "`space` its fields are named one by one, as `training.plateau.factor`, of which one is "
        "enough. Null: the metric changes no rate",
    )
    patience: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        exclude_if=_is_null,
        description="a trial is complete after so many epochs without a better validation metric; "
        "null: after those of the budget",
    )
    probe_every: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        exclude_if=_is_null,
        description="the learning curve has the norms of the loss's gradient at the first and the "
        "last state in each update whose number, counted from the trial's first one, is a multiple "
        "of this, in at most 1,000 of an epoch; null: in an epoch's last update alone",
    )
    quantised_epochs: int = Field(
        default=2,
        ge=0,
        le=1_000_000,
        description="of a model with `bits` below 32: in so many epochs, the last ones of the "
        "budget, gradients are those at the rounded weights; 0: training knows nothing of rounding",
    )

    @field_validator("rmsprop_eps")
    @classmethod
    def _divides_by_something(cls, eps: float, info: ValidationInfo) -> float:
        if eps == 0 and info.data.get("rmsprop_start") == 0:
            raise ValueError(
                "with rmsprop_start 0 the first step of a gradient of 0 is 0 / 0; allowed is one "
                "of the two above 0"
            )
        return eps

    @property
    def has_own_rmsprop(self) -> bool:
        """Whether `rmsprop_start` or `rmsprop_eps` is another one than the default."""
        return self.rmsprop_start != 0 or self.rmsprop_eps != _USUAL_EPS

    @property
    def may_end_early(self) -> bool:
        """Whether a trial may be complete before its budget's last epoch."""
        return self.plateau is not None or self.patience is not None

    @classmethod
    def suggest(cls, sampler: ParameterSampler) -> "TrainingSpec":
        """Draw the learning rate (log-uniform) and the batch size (by 32)."""
        return cls(
            learning_rate=sampler.real("learning_rate", 3e-4, 3e-2, log=True),
            batch_size=sampler.integer("batch_size", 32, 128, step=32),
        )


class TrialSpec(Spec):
    """Everything that a trial's numbers follow from, the task and the machine excepted."""

    model: ModelSpec
    training: TrainingSpec
    seed: int = Field(ge=0, description="seeds the initialisation and the order of the data")
    compression: Compression | None = Field(
        default=None,
        description="the trained network whose conversion the trial starts from; null: the seed's "
        "initialisation",
    )

    def parameter_count(self) -> int:
        """All trainable numbers.

        Raises:
            SpecError: the model cannot be built; so for all below.
        """
        return self.model.parameter_count()

    def dense_parameter_count(self) -> int:
        """Those of its dense baseline."""
        return self.model.dense_twin().parameter_count()

    def shape_key(self) -> str:
        """What it has in common with those that take the same time."""
        return self.model.shape_key()

    def check(self) -> None:
        """See whether the model can be built."""
        self.model.check()


AnyTrialSpec: TypeAlias = TrialSpec | NetworkTrial
"""A trial that trains a model, or stores a network of others anew."""

_NETWORK = kind_of(NetworkTrial)


def is_of_a_network(document: Mapping[str, Any]) -> bool:
    """Whether a trial's document is that of a network of others."""
    return document.get("kind") == _NETWORK


def trial_spec_of(document: Mapping[str, Any]) -> AnyTrialSpec:
    """A trial's document as its row has it."""
    if is_of_a_network(document):
        return NetworkTrial.model_validate(document)
    return TrialSpec.model_validate(document)
