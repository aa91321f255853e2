"""What a table of a paper is made of: systems, rows, and the study that trains a row."""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

from pydantic import Field

from models.architectures import AnyArchitecture
from models.model import ModelSpec
from models.parametrizations import AnyFamily
from models.spec import Signature, Spec
from search.documents.papers import Claim, Direction, RowEntry, Source
from search.tasks import AnyTask
from search.training.trial_spec import TrainingSpec

SEEDED = ("split_seed", "seed")
"""Fields of tasks that a repetition moves: what is set aside, and what is generated."""

_OPERATIONS_A_SECOND = 18e9
_SECONDS_AN_UPDATE = 4e-3
_SECONDS_AN_EPOCH = 0.2
"""Of one core, fitted to the 115 rows that CPUs have trained (deploy/reproduction): half of them
took 0.7 to 1.4 times what is predicted, and nine in ten 0.6 to 1.8 times."""


class System(Spec):
    """A network of a paper, with its sizes."""

    name: str
    title: str
    paper: str
    description: str = Field(
        description="what it is, where its numbers are from, and what differs from the source"
    )
    architecture: AnyArchitecture
    parametrization: AnyFamily


class Preset(System):
    """A system with the training, the task and the budget of the row that it is named after."""

    training: TrainingSpec
    task: AnyTask = Field(
        description="the source's own task; where its data are licensed or the user's to get, the "
        "study begins when they are in the data folder"
    )
    epochs: int
    rows: tuple[str, ...] = Field(
        default=(), description="rows of the papers' tables that it is: table, colon, key"
    )


class Recipe(Spec):
    """How a row is trained, and for how long."""

    training: TrainingSpec
    epochs: int = Field(ge=1, description="that the training takes")
    updates: int = Field(ge=1, description="of the optimizer, in all epochs")


class Row(Spec):
    """A system that a paper has a number or a claim for."""

    key: str = Field(description="its name within the table; what stands before a / is its group")
    system: System
    task: AnyTask
    recipe: Recipe
    source: Source
    claim: Claim | None = Field(default=None, description="null: the source prints no number")
    test_samples: int | None = Field(
        default=None, description="of which a printed share is the share"
    )
    printed_parameters: int | str | None = None
    parameters: int = Field(description="all trainable numbers, as they are")
    signature: Signature | None = Field(
        default=None, description="where it follows from files; null: the task says it"
    )
    direction: Direction | None = Field(
        default=None, description="of the task's quality; null: the claim or the task says it"
    )
    preset: bool = Field(
        default=False, description="whether the system is offered with this row's training"
    )
    erratum: str | None = None
    deviation: str | None = None
    unreachable: str | None = Field(
        default=None, description="why the number cannot be reproduced, or not be judged"
    )

    @property
    def group(self) -> str:
        """The part of the key that systems share."""
        return self.key.partition("/")[0]

    @property
    def quality_direction(self) -> Direction:
        """Whether a quality is better when it is more, or less."""
        if self.claim is not None:
            return self.claim.direction
        return self.direction or self.task.metric.direction

    @property
    def training(self) -> TrainingSpec:
        """How it is trained."""
        return self.recipe.training

    @property
    def model(self) -> ModelSpec:
        """The model, on the task as its files have it."""
        return ModelSpec(
            architecture=self.system.architecture,
            parametrization=self.system.parametrization,
            signature=self.task.signature() if self.signature is None else self.signature,
        )

    @property
    def predicted_seconds(self) -> float:
        """Of one core for one seed, roughly."""
        signature = self.model.signature
        steps = signature.sequence_length if self.system.architecture.any_length else 1
        embedded = (signature.vocabulary or 0) * signature.input_size
        products = 6 * self.training.batch_size * steps * (self.parameters - embedded)
        an_update = products / _OPERATIONS_A_SECOND + _SECONDS_AN_UPDATE
        return self.recipe.updates * an_update + self.recipe.epochs * _SECONDS_AN_EPOCH

    def as_preset(self, rows: Iterable[str]) -> Preset:
        """The system as studies name it; `rows` are all that it is in the tables."""
        return Preset(
            **{name: getattr(self.system, name) for name in System.model_fields},
            training=self.training,
            task=self.task,
            epochs=self.recipe.epochs,
            rows=tuple(rows),
        )

    def document(self, table: str, *, seed: int = 0) -> dict[str, Any]:
        """A study of one trial, this row, every field of it pinned.

        Args:
            table: the name of the row's table, which the study's name begins with.
            seed: of the initialisation and the order of the data, and of what is set aside or
                generated.
        """
        architecture, family = self.system.architecture, self.system.parametrization
        return {
            "name": f"{table}: {self.key}, seed {seed}",
            "task": task_document(self.task, seed=seed),
            "architectures": [architecture.kind],
            "parametrizations": [family.kind],
            "space": {
                **_pins(architecture.kind, architecture),
                **_pins(family.kind, family),
                **_pins("training", self.training),
            },
            "objectives": ["quality", "parameters"],
            "budget": {"trials": 1, "epochs": self.recipe.epochs},
            "sampler": {"kind": "random"},
            "seed": seed,
        }

    def entry(self, table: str) -> RowEntry:
        """The row as the API answers with it."""
        return RowEntry(
            key=self.key,
            system=self.system.name,
            title=self.system.title,
            description=self.system.description,
            source=self.source,
            claim=self.claim,
            direction=self.quality_direction,
            test_samples=self.test_samples,
            printed_parameters=self.printed_parameters,
            parameters=self.parameters,
            updates=self.recipe.updates,
            predicted_seconds=self.predicted_seconds,
            erratum=self.erratum,
            deviation=self.deviation,
            unreachable=self.unreachable,
            spec=self.document(table),
        )


def by_passes(training: TrainingSpec, *, samples: int, epochs: int) -> Recipe:
    """A recipe whose epochs are passes over so many samples."""
    updates = epochs * math.ceil(samples / training.batch_size)
    return Recipe(training=training, epochs=epochs, updates=updates)


def by_updates(training: TrainingSpec, *, updates: int, each: int) -> Recipe:
    """A recipe whose epochs are `each` updates."""
    return Recipe(
        training=training.model_copy(update={"epoch_updates": each}),
        epochs=math.ceil(updates / each),
        updates=updates,
    )


def task_document(task: AnyTask, *, seed: int) -> dict[str, Any]:
    """The task as a study's document names it, with this seed of what it sets aside or draws."""
    fields = task.model_dump(mode="json", exclude={"facts"}, exclude_defaults=True)
    moved = {name: seed for name in SEEDED if name in type(task).model_fields}
    return {"kind": task.kind, **fields, **moved}


def _pins(name: str, spec: Spec) -> Mapping[str, Any]:
    return dict(_pinned(name, spec.model_dump(mode="json")))


def _pinned(name: str, fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for field, value in fields.items():
        if isinstance(value, dict):
            yield from _pinned(f"{name}.{field}", cast("dict[str, Any]", value))
        elif field != "kind":
            yield f"{name}.{field}", value
