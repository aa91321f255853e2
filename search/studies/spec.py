"""The document that a user POSTs: what to search, for what, within which limits."""

from collections.abc import Collection, Mapping
from typing import Annotated, Literal, Self, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from models.architectures import ARCHITECTURES
from models.exports.files import ExportedFile
from models.parametrizations import PARAMETRIZATIONS
from models.spec import Spec, kind_of
from search.documents.nearest import allowed_instead
from search.documents.objectives import OBJECTIVE_KINDS, USUAL_OBJECTIVES
from search.documents.region import Objectives, Region
from search.documents.runtimes import RUNTIME_KINDS
from search.graphs.model_outputs import ModelOutputs
from search.graphs.picks import Objective as NetworkCost
from search.papers import PRESETS
from search.samplers import AnySampler, ByLayer, FreezeThaw, KnownCost, Tpe
from search.spaces import Limits, Override
from search.stopping import AnyStopping
from search.studies.webhook import Webhook
from search.tasks import AnyTask
from search.training.compression import Compress
from search.training.throughput_spec import Throughput

_ARCHITECTURE_KINDS = tuple(kind_of(variant) for variant in ARCHITECTURES)
_PARAMETRIZATION_KINDS = tuple(kind_of(variant) for variant in PARAMETRIZATIONS)


def _known(name: str, allowed: tuple[str, ...], *, what: str = "kind") -> str:
    if name not in allowed:
        rest = allowed_instead(name, allowed, rest="GET /v1/catalog has all of them")
        raise ValueError(f"unknown {what} {name!r}{rest}")
    return name


ArchitectureKind = Annotated[
    str,
    AfterValidator(lambda kind: _known(kind, _ARCHITECTURE_KINDS)),
    WithJsonSchema({"type": "string", "enum": list(_ARCHITECTURE_KINDS)}),
]
ParametrizationKind = Annotated[
    str,
    AfterValidator(lambda kind: _known(kind, _PARAMETRIZATION_KINDS)),
    WithJsonSchema({"type": "string", "enum": list(_PARAMETRIZATION_KINDS)}),
]
PresetName = Annotated[
    str,
    AfterValidator(lambda name: _known(name, tuple(PRESETS), what="preset")),
    WithJsonSchema({"type": "string", "enum": list(PRESETS)}),
]


class Budget(Spec):
    """When a study has done enough; the first budget that is used up ends it."""

    trials: int = Field(
        default=30,
        ge=1,
        le=1_000_000,
        description="trials that end after they were dispatched; with `freeze_thaw`, which pauses "
        "them, the epochs of so many whole trainings",
    )
    epochs: int = Field(default=10, ge=1, le=100_000, description="epochs per trial, at most")
    total_epochs: int | None = Field(
        default=None, ge=1, le=10**12, description="epochs over the whole study"
    )
    wall_seconds: float | None = Field(default=None, gt=0, description="seconds in state running")
    device_hours: float | None = Field(
        default=None, gt=0, description="sum over attempts of slot share times hours"
    )


_MOST_TOGETHER = 8
_NETWORK_TRIALS = 100
"""Of a study of a network of others, whose trials take seconds each."""
NOT_OF_A_NETWORK: Mapping[str, str] = {
    "architectures": "the network is what it is",
    "parametrizations": "each layer of a network is stored by a choice of its own",
    "space": "what is tried of a network follows from its layers",
    "presets": "those train models of their own",
    "warm_start": "a network's layers are no other study's",
    "compress": "what is compressed is task.model",
    "early_stopping": "nothing is trained",
    "confirm": "no seed changes what a file answers",
    "export": "files of a network are ONNX files",
}
"""Parts of a document that say how models are trained, and why a network has none of them."""
_COMPLETED = ("budget", "throughput")
"""Parts of which some may be said and the rest left to the defaults."""


def _is_of_a_network(task: object) -> bool:
    if isinstance(task, ModelOutputs):
        return True
    return isinstance(task, Mapping) and cast(Mapping[str, object], task).get("kind") == kind_of(
        ModelOutputs
    )


def _of_a_network(fields: Mapping[str, object]) -> dict[str, object]:
    """The defaults of a study of a network of others, of what a document does not say."""
    budget = fields.get("budget", {})
    if isinstance(budget, Mapping):
        budget = {"trials": _NETWORK_TRIALS, **cast(Mapping[str, object], budget)}
    throughput = fields.get("throughput", {})
    if isinstance(throughput, Mapping):
        throughput = {
            "runtime": "onnxruntime",
            "batch_size": 1,
            **cast(Mapping[str, object], throughput),
        }
    return {
        "objectives": ("quality", "bytes"),
        "sampler": ByLayer(),
        "retention": Retention(keep="front"),
        "budget": budget,
        "throughput": throughput,
    }


class Resources(Spec):
    """Where attempts may run."""

    device: Literal["any", "cpu", "cuda"] = Field(
        default="any", description="the kind of device that trials run and are measured on"
    )
    fraction: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="the share of a device that a trial wants: it runs only on slots that are as "
        "much or more. A CPU slot is a whole core, 1; a GPU is divided evenly among its slots. "
        "Null: any slot",
    )
    stack: Annotated[int, Field(ge=1, le=64)] | Literal["auto"] = Field(
        default=1,
        description="how many trials one slot trains together at most, each with results of its "
        "own: trials of one architecture, parametrization and size, which may differ in counts, "
        "ranks, learning rates and seeds. As many of them are computed in one call as is fastest "
        "on the machine. `auto`: up to 8; 1: each alone, with the same bits each time",
    )

    @property
    def most_together(self) -> int:
        """How many trials a slot may train in the same calls."""
        return _MOST_TOGETHER if self.stack == "auto" else self.stack

    def admits(self, device: str, share: float) -> bool:
        """Whether a slot serves it that is a `share` of a device: `cpu`, or `cuda:<uuid>`."""
        return is_of_kind(device, self.device) and share >= (self.fraction or 0.0)


def is_of_kind(device: str, kind: str) -> bool:
    """Whether a slot's device, `cpu` or `cuda:<uuid>`, is of a kind: `any`, `cpu` or `cuda`."""
    return kind == "any" or device.partition(":")[0] == kind


def measured_kind(throughput: Throughput, resources: Resources) -> Literal["any", "cpu", "cuda"]:
    """The kind of device that a study is measured on: what its runtime leaves of its wish."""
    devices = RUNTIME_KINDS[throughput.runtime].devices
    return devices[0] if len(devices) == 1 else resources.device


class Retention(Spec):
    """Which trained models stay when their trials have ended; reports and results always do."""

    keep: Literal["front", "all", "none"] = Field(
        default="all",
        description="whose checkpoints stay: those of the front, all, or none; what is off the "
        "front goes while the study runs. All by default: only a user can tell what is not needed",
    )
    top: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="with `front` or `none`: so many trials of the best quality keep theirs too",
    )


Priority = Annotated[
    int,
    Field(
        ge=-100,
        le=100,
        description="a tenant's studies of a higher priority take slots and the measurement lock "
        "first, equal ones in turn. What runs is not ended for it: a study of a lower priority has "
        "what the others leave",
    ),
]


class StudySpec(Spec):
    """A study: the task, the candidates, the space, the objectives and when to end.

    Only `task` is required.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"task": {"kind": "digits"}},
                {
                    "name": "rows of digits, at most 2000 parameters",
                    "task": {"kind": "digits", "layout": "rows"},
                    "architectures": ["rnn", "gru"],
                    "parametrizations": ["dense", "householder_svd", "packed_rotations"],
                    "space": {
                        "hidden_size": {"low": 16, "high": 64, "step": 8},
                        "householder_svd.r": 0.1,
                        "training.learning_rate": {"low": 1e-3, "high": 1e-2, "log": True},
                    },
                    "limits": {"parameters": 2000, "min_throughput_ratio": 0.5},
                    "budget": {"trials": 40, "epochs": 10, "wall_seconds": 1800},
                },
            ]
        }
    )

    name: str = Field(
        default="study",
        min_length=1,
        max_length=200,
        description="for people: any printable text; studies are distinguished by their ids",
    )
    task: Annotated[AnyTask | ModelOutputs, Field(discriminator="kind")] = Field(
        description="what is learned, and the metric that quality is; `model_outputs` trains "
        "nothing: it compresses an uploaded network by what it answers"
    )
    architectures: tuple[ArchitectureKind, ...] = Field(
        default=("rnn", "gru"),
        min_length=1,
        max_length=100,
        description="the kinds of networks that are tried; each has to go with one at least of the "
        "parametrizations",
    )
    parametrizations: tuple[ParametrizationKind, ...] = Field(
        default=("dense", "householder_svd", "low_rank", "low_rank_diagonal", "packed_rotations"),
        min_length=1,
        max_length=100,
        description="the forms that their weights are tried in, each with every architecture that "
        "it is defined on",
    )
    space: Mapping[str, Override] = Field(
        default_factory=dict[str, Override],
        max_length=2_000,
        description="keys are `<field>`, `<kind>.<field>`, `model.bits` or `training.<field>`; "
        "a value is a pin, a range, or options as a list. Where it says nothing of them, "
        "`gru.reset` is pinned to `after` and `rnn.activation` to `tanh`, what torch.nn's layers "
        "compute",
    )
    objectives: Objectives = Field(
        default=USUAL_OBJECTIVES,
        description="what the front is of: the task's metric on validation data, the count of all "
        "parameters, measured samples per second, bytes of the exported file (see "
        "`export`), and seconds of one measured call. As an object, each with the least value that "
        'interests: `{"quality": {"at_least": 0.9}, "parameters": {"at_most": 20000}, '
        '"throughput": {}}`. The search looks for hypervolume within this region; trials beyond '
        "it are trained and stored all the same, and shown as `outside`",
    )
    limits: Limits = Field(default=Limits(), description="what no trial may exceed")
    budget: Budget = Field(default=Budget(), description="when the study has done enough")
    sampler: AnySampler = Field(
        default=FreezeThaw(),
        description="which configurations are tried. A document that names none has `freeze_thaw`, "
        "which also says how far each trains; with a rule of `early_stopping` it has `known_cost`, "
        "and where quality is no objective, so that there is nothing to model, `tpe`",
    )
    early_stopping: AnyStopping | None = Field(
        default=None,
        description="the rule by which trials end before their last epoch; null: none does",
    )
    throughput: Throughput = Field(
        default=Throughput(), description="how throughput is measured: as you will deploy"
    )
    export: ExportedFile = Field(
        default=ExportedFile(),
        description="the exported file that the objective `bytes` and the limit on it are about",
    )
    duplicates: Literal["reuse", "replicate", "resample"] = Field(
        default="reuse",
        description="what becomes of a configuration that an earlier trial has: it takes over that "
        "one's result, it is trained with another seed, or it is drawn again, three times at most, "
        "before it is reused",
    )
    confirm: int = Field(
        default=0,
        ge=0,
        le=20,
        description="when the search is over, so many further seeds of each point of the front "
        "are trained, beyond `budget.trials` and within the other budgets, to tell luck from "
        "merit. A study that one of those ends has nothing left for it, and its front says so",
    )
    resources: Resources = Field(default=Resources(), description="where trials may run")
    retention: Retention = Field(
        default=Retention(), description="which checkpoints stay when their trials have ended"
    )
    warm_start: tuple[str, ...] = Field(
        default=(),
        max_length=20,
        description="ids of other studies. Of the same task, their complete and stopped trials "
        "that lie in this space, as they stand now, are known to the samplers before the first "
        "suggestion; `nsga2` and `nsga3` learn from complete ones alone, `random` and `grid` from "
        "nothing. Of another task, data or metric, `freeze_thaw` takes how their complete trials "
        "rank, and learns how much that tells here; other samplers refuse them. Those trials are "
        "on no front and count in no budget, and stay known when their study is deleted",
    )
    presets: tuple[PresetName, ...] = Field(
        default=(),
        max_length=1_000,
        description="named systems of the papers, which are the study's first trials, in this "
        "order and exactly as named; they need not lie in the space",
    )
    compress: Compress | None = Field(
        default=None,
        description="an uploaded model whose architecture every trial has and whose conversion "
        "each starts from: `architectures` is then what the model is, and need not be named. The "
        "model itself, measured as it is, is trial 0; null: trials start from the seed's "
        "initialisation",
    )
    webhook: Webhook | None = Field(
        default=None,
        description='a server of yours that is notified, signed, when the study ends: `{"url": '
        '"https://..."}`; null: none is',
    )
    priority: Priority = 0
    seed: int = Field(
        default=0,
        ge=0,
        lt=2**32,
        description="suggestion k is drawn from the seed, k and the results before it",
    )

    @model_validator(mode="before")
    @classmethod
    def _with_defaults(cls, document: object) -> object:
        """The default sampler has to have a quality to model, and no rule beside it.

        A study of a network of others has defaults of its own.
        """
        if not isinstance(document, Mapping):
            return document
        fields = cast(Mapping[str, object], document)
        if _is_of_a_network(fields.get("task")):
            defaults = _of_a_network(fields)
            return {**defaults, **fields, **{name: defaults[name] for name in _COMPLETED}}
        if "sampler" in fields:
            return fields
        objectives = fields.get("objectives", USUAL_OBJECTIVES)
        if isinstance(objectives, list | tuple | Mapping) and "quality" not in objectives:
            return {**fields, "sampler": Tpe()}
        if fields.get("early_stopping") is not None:
            return {**fields, "sampler": KnownCost()}
        return fields

    @field_validator("architectures", "parametrizations", "objectives", "presets", "warm_start")
    @classmethod
    def _without_repeats(cls, names: Collection[str]) -> Collection[str]:
        if len(set(names)) != len(names):
            raise ValueError(f"a name stands twice: {list(names)}")
        return names

    @field_validator("compress")
    @classmethod
    def _starts_from_one_thing(
        cls, compress: Compress | None, info: ValidationInfo
    ) -> Compress | None:
        if compress is not None and info.data.get("presets"):
            raise ValueError(
                "presets train from their own initialisation, which a study that compresses a "
                "model has none of; allowed beside it are no presets"
            )
        return compress

    @field_validator("early_stopping")
    @classmethod
    def _has_something_to_stop(
        cls, rule: AnyStopping | None, info: ValidationInfo
    ) -> AnyStopping | None:
        objectives, budget = info.data.get("objectives"), info.data.get("budget")
        if rule is None or objectives is None or budget is None:
            return rule
        if "quality" not in objectives:
            raise ValueError(
                f"{rule.kind} compares what trials learn, so that quality has to be an objective; "
                f"objectives are {', '.join(objectives)}"
            )
        sampler = info.data.get("sampler")
        if sampler is not None and sampler.rungs(budget.epochs):
            raise ValueError(
                f"{sampler.kind} decides itself which trials go on; allowed beside it is null"
            )
        if rule.min_epochs >= budget.epochs:
            raise ValueError(
                f"min_epochs is {rule.min_epochs} and trials have {budget.epochs} epochs, of which "
                "the last stops nothing: min_epochs has to be lower than budget.epochs"
            )
        return rule

    @model_validator(mode="after")
    def _asks_of_a_network_what_it_has(self) -> Self:
        if not isinstance(self.task, ModelOutputs):
            return self
        for name, why in NOT_OF_A_NETWORK.items():
            field = type(self).model_fields[name]
            value = getattr(self, name)
            if value != field.get_default(call_default_factory=True):
                raise ValueError(
                    f"{name} is {value!r}, and {why}; allowed with the task model_outputs is to "
                    "leave it out"
                )
        if self.resources.most_together > 1:
            raise ValueError(
                f"resources.stack is {self.resources.stack!r}; trials of the task model_outputs "
                "are not trained, and allowed is 1"
            )
        return self

    @field_validator("name")
    @classmethod
    def _printable(cls, name: str) -> str:
        if not name.isprintable():
            raise ValueError(f"the name {name!r} holds characters that cannot be printed")
        return name

    @property
    def trained_task(self) -> AnyTask:
        """The task that models are trained for.

        Raises:
            TypeError: nothing is trained: the study compresses a network of others.
        """
        if isinstance(self.task, ModelOutputs):
            raise TypeError("a study of a network of others trains nothing")
        return self.task

    @property
    def region(self) -> Region:
        """Which values of the objectives interest: all, unless some have a bound."""
        return Region.of(self.objectives)

    @property
    def named_first(self) -> int:
        """How many trials are named by the document: its presets, or the model it compresses."""
        return len(self.presets) if self.compressed_model is None else 1

    @property
    def compressed_model(self) -> str | None:
        """The id of the uploaded model that the study compresses; null: it compresses none."""
        if isinstance(self.task, ModelOutputs):
            return self.task.model
        return None if self.compress is None else self.compress.model

    @property
    def network_costs(self) -> tuple[NetworkCost, ...]:
        """What the files of a network may cost; time follows multiply-adds."""
        found: list[NetworkCost] = []
        if {"bytes", "parameters"} & {*self.objectives}:
            found.append("bytes")
        if {"latency", "throughput"} & {*self.objectives}:
            found.append("multiply_adds")
        return tuple(found) or ("bytes",)

    @property
    def needs_throughput(self) -> bool:
        """Whether trials are measured before they train: for an objective or for a limit."""
        measured = any(OBJECTIVE_KINDS[name].known == "measured" for name in self.objectives)
        return measured or self.limits.are_on_speed or self.needs_latency

    @property
    def needs_latency(self) -> bool:
        """Whether single calls are timed as well."""
        return "latency" in self.objectives or self.limits.latency_seconds is not None

    @property
    def searches_bits(self) -> bool:
        """Whether numbers of fewer bits are tried: where the size of the file is an objective."""
        return "bytes" in self.objectives

    @property
    def needs_bytes(self) -> bool:
        """Whether the size of a trial's file counts: for an objective or for a limit."""
        return "bytes" in self.objectives or self.limits.bytes is not None
