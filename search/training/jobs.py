"""What attempts and the service say to each other, as JSON.

An attempt is given a `Job` by its machine's agent, which passes on what the attempt says, see
`search.agents.protocol`: how far a download is (`Progress`), each epoch (`EpochReport`), each
measurement (`MeasurementReport`), files by their roles, its log, and how it ended (`Completion`).
It asks for files of its trial, which may be the checkpoint of another one (`START`, `ORIGINAL`),
and for the data set that its job names.

What is said is checked before it is stored, see `search.running.attempt_checks` and
`search.running.artifact_checks`. What cannot be (an accuracy of 5, an epoch beyond the budget, a
checkpoint of another model) is refused with what is allowed, changes nothing, and ends the
attempt as failed by its own doing; a trial that failed so often enough ends as failed.

A log is taken for some minutes after its attempt's end too. All else is refused whose lease ended,
or is a newer attempt's: then the attempt is ended at once.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from models.exports.files import FileForm
from models.model import ModelSpec
from models.spec import Spec
from search.documents.gradients import ProbedGradient
from search.documents.runtimes import Mode, RuntimeName
from search.tasks import AnyTask, Range
from search.training.network_jobs import EvaluateJob, MeasureNetworkJob, PrepareNetworkJob
from search.training.trial_spec import TrialSpec

OUT_OF_MEMORY: Final = "out of memory"
"""What the reason of a trial begins with that took more than there is."""

START = "start"
"""The role under which a worker reads the checkpoint of the trial that its own continues."""

ORIGINAL = "original"
"""The role under which it reads the checkpoint of the model that its study compresses."""

CONVERSION = "conversion"
"""The role under which it stores what the conversion of that model lost."""


class PrepareJob(Spec):
    """Fetch, check and cache the task's data; the study begins when it has succeeded."""

    kind: Literal["prepare"] = "prepare"
    task: AnyTask


class Shape(Spec):
    """One thing to measure: a trial's model, named by its shape key."""

    trial: int = Field(ge=0)
    shape_key: str
    model: ModelSpec

    def parameter_count(self) -> int:
        """All trainable numbers."""
        return self.model.parameter_count()

    def dense_parameter_count(self) -> int:
        """Those of the dense baseline."""
        return self.model.dense_twin().parameter_count()


class MeasureJob(Spec):
    """Measure several shapes in a row, alone on the device, each with its dense baseline."""

    kind: Literal["measure"] = "measure"
    shapes: tuple[Shape, ...]
    mode: Mode = "inference"
    runtime: RuntimeName = "reflectory"
    form: FileForm = Field(default="auto", description="of the ONNX file that is run, if one is")
    latency: bool = Field(default=False, description="whether single calls are timed as well")
    batch_size: int = Field(ge=1)
    sequence_length: int | None = Field(
        default=None, ge=1, description="null: the task's own length"
    )
    threads: int = Field(default=1, ge=1)
    device: str | None = Field(
        default=None, description="the model of the device to measure on; null in older jobs"
    )

    def steps_of(self, shape: Shape) -> int:
        """Steps of a sample, as a shape is measured."""
        return self.sequence_length or shape.model.signature.sequence_length


class TrainJob(Spec):
    """Train one trial to its budget of epochs, from the stored resume file where there is one."""

    kind: Literal["train"] = "train"
    task: AnyTask
    trial: TrialSpec
    number: int = Field(ge=0)
    epochs: int = Field(ge=1)
    continues: int | None = Field(
        default=None,
        ge=0,
        description="the trial whose checkpoint, the artifact `start`, training begins with; "
        "null: the trial's own seed initialises the model",
    )
    checkpoint_seconds: float = Field(
        default=2.0,
        ge=0,
        description="between two resume files, at first: then a hundredth of the time that the "
        "trial has taken, up to a minute, and more where they take more than a twentieth of the "
        "time; 0: one after each step",
    )

    waits_at: tuple[int, ...] | None = Field(
        default=None,
        description="the epochs after which training waits for its verdict, for it may end there; "
        "null: after each",
    )

    @property
    def first_epoch(self) -> int:
        """0 where a conversion is validated as it is, before any training; else 1."""
        # A trial that continues another starts from what is not its conversion.
        return 0 if self.trial.compression is not None and self.continues is None else 1

    @property
    def last_epoch(self) -> int:
        """That of the budget; 0 for an original, which is not trained."""
        compression = self.trial.compression
        is_original = compression is not None and compression.is_original
        return 0 if is_original and self.first_epoch == 0 else self.epochs

    @property
    def may_end_early(self) -> bool:
        """Whether the trial may be complete before its last epoch."""
        return self.trial.training.may_end_early

    @property
    def needed_roles(self) -> tuple[str, ...]:
        """What has to be stored of a complete trial."""
        return ("checkpoint", "report")

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Which values each metric can have, by name."""
        return self.task.meter().ranges


TrialJob: TypeAlias = TrainJob | EvaluateJob
"""What is done for one trial."""

TRIAL_JOBS = (TrainJob, EvaluateJob)

AnyMeasureJob: TypeAlias = MeasureJob | MeasureNetworkJob
"""What is done alone on a device."""

MEASURE_JOBS = (MeasureJob, MeasureNetworkJob)

LoneJob: TypeAlias = PrepareJob | PrepareNetworkJob | MeasureJob | MeasureNetworkJob | EvaluateJob
"""What a slot does beside nothing else."""

Job = Annotated[
    PrepareJob | PrepareNetworkJob | MeasureJob | MeasureNetworkJob | TrainJob | EvaluateJob,
    Field(discriminator="kind"),
]


HeldSeconds = Annotated[
    float | None,
    Field(
        ge=0,
        description="how long the attempt has had its slot, by a clock that nobody sets; what "
        "attempts have together is divided, each moment by those who are there",
    ),
]


class Progress(Spec):
    """How far a download is, for the user's eyes."""

    file: str
    received: int = Field(ge=0, description="bytes so far")
    total: int = Field(ge=0, description="bytes in all; 0 when unknown")


MOST_PROBES: Final = 1000
"""Updates of an epoch of which gradients are reported."""


def _is_unsaid(value: object) -> bool:
    """Whether a field is left out: reports that do not need it are as they were before it."""
    return value is None or value == ()


class EpochReport(Spec):
    """One epoch of the learning curve. Sending an epoch again overwrites it."""

    epoch: int = Field(
        ge=0, description="from 1; 0 is a conversion before any training, or an original"
    )
    train_loss: float | None = Field(
        description="the task's loss alone, without the weights' own penalties: the mean over the "
        "samples of batches where it is finite; null at epoch 0"
    )
    validation: float = Field(description="the task's metric on the validation split")
    validation_loss: float | None = Field(
        default=None,
        exclude_if=_is_unsaid,
        description="the task's loss there, by which ties of the metric are broken; null where it "
        "is not finite, or is not computed",
    )
    spectral_margin: float | None = Field(
        default=None,
        description="the largest distance of a singular value from sigma*, which is the middle of "
        "the family's interval, 0 for other matrices in residual branches, else 1",
    )
    generalization_term: float | None = Field(
        default=None,
        exclude_if=_is_unsaid,
        description="ln B(w) of a recurrent network of one matrix, to compare models of one task "
        "and never as a bound, see `models.generalization`; null: the theorem speaks of others",
    )
    gradient_first: float | None = Field(
        default=None,
        description="|dL/dh| of the state before the first step or layer in the epoch's last "
        "batch, the mean over its samples: far below `gradient_last` the gradient vanishes on its "
        "way back, far above it explodes; null where it is not finite",
    )
    gradient_last: float | None = Field(
        default=None, description="the same of the state after the last step or layer"
    )
    probes: tuple[ProbedGradient, ...] = Field(
        default=(),
        max_length=MOST_PROBES,
        exclude_if=_is_unsaid,
        description="of the updates that `probe_every` names, in their order",
    )
    recovered_batches: int = Field(
        default=0, ge=0, lt=2**31, description="batches that `nan_recovery` stepped in for"
    )
    seconds: float = Field(
        ge=0,
        description="training time of the epoch, without standing still; of trials that are "
        "trained together each one's share, so that what they took adds up",
    )
    stood_still_seconds: float = Field(default=0.0, ge=0, description="in all, by this attempt")
    held_seconds: HeldSeconds = None


class MeasurementReport(Spec):
    """One shape's throughput; `record` is a `search.measuring` `ThroughputRecord` as JSON."""

    trial: int = Field(ge=0)
    shape_key: str
    device: str
    samples_per_second: float = Field(gt=0)
    ratio: float = Field(gt=0)
    latency_p50: float | None = Field(default=None, gt=0)
    latency_p99: float | None = Field(default=None, gt=0)
    seconds: float = Field(ge=0, description="how long the measurement lock was held for it")
    record: dict[str, Any]


class Completion(Spec):
    """How the attempt ended.

    `complete`: trained to its budget, or as far as `plateau` and `patience` say. `stopped`: the
    verdict said so. `paused`: likewise, and the state is stored from which another attempt may go
    on. `infeasible`: out of memory or diverged. `failed`: anything unexpected, with the traceback's
    last lines as reason. `data`: the task's data is missing or damaged, which fails the study.
    Prepare and measure jobs end `complete`, `failed` or `data`.
    """

    outcome: Literal["complete", "stopped", "paused", "infeasible", "failed", "data"]
    reason: str | None = None
    quality: float | None = Field(default=None, description="validation metric of the best epoch")
    test_quality: float | None = Field(default=None, description="test metric of the best epoch")
    test_metrics: dict[str, float] = Field(
        default_factory=dict[str, float],
        description="all that the task measures on the test split, by name, of the best epoch",
    )
    best_epoch: int | None = Field(
        default=None, ge=0, description="0: no training made the conversion better"
    )
    agreement: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of the decisions on validation data that are the original's; null where "
        "nothing is decided, or nothing was compressed",
    )
    epochs_trained: int = Field(default=0, ge=0)
    stood_still_seconds: float = Field(default=0.0, ge=0)
    held_seconds: HeldSeconds = None
    prepared: dict[str, Any] | None = Field(
        default=None, description="prepare jobs: what was found"
    )


class Verdict(Spec):
    """What the worker does next: go on, or stop or pause at the end of this epoch."""

    verdict: Literal["continue", "stop", "pause"] = "continue"
    reason: str | None = None
    lease_seconds: float = Field(description="how long the lease holds from now on")


class Stored(Spec):
    """Bytes are in the store and the row names them."""

    sha256: str
    size: int
