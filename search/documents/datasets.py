"""Users' own data: how an upload is to be read, and what was found in it."""

from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from models.spec import Spec

Problem = Literal["classification", "regression", "multilabel", "forecasting"]
"""One class each; numbers each; any of several labels each; the next step of the series itself."""


class ReadingOptions(Spec):
    """How an upload is to be read; all can be left out."""

    problem: Problem | None = Field(
        default=None,
        description="null: classification for labels and whole numbers, multilabel for rows of 0 "
        "and 1, regression for other numbers, forecasting where there are no targets",
    )
    label: str | None = Field(
        default=None,
        max_length=200,
        description="csv, tsv: the target's column, by name or by number from 0; null: the first",
    )
    unequal_lengths: Literal["refuse", "pad"] = Field(
        default="refuse",
        description="series of different lengths: an error, or padded behind and masked",
    )
    missing: Literal["refuse", "mean"] = Field(
        default="refuse",
        description="missing values: an error, or replaced by their feature's mean over the "
        "training samples (over all, where no split is given)",
    )

    holds: Literal["samples", "arrays"] = Field(
        default="samples",
        description="samples: sequences or features with their targets, to train on; arrays: an "
        "npz of arrays of any names, samples first, for the inputs of a network from an ONNX file",
    )

    @model_validator(mode="after")
    def _arrays_are_taken_as_they_are(self) -> Self:
        given = self.model_dump(exclude={"holds"}, exclude_defaults=True)
        if self.holds == "arrays" and given:
            raise ValueError(
                f'{", ".join(given)} says how samples are read; allowed with holds: "arrays" is '
                "none of them"
            )
        return self


class DatasetFacts(Spec):
    """What an upload holds once it is read: x `[samples, steps, features]`, and its targets."""

    problem: Problem
    samples: dict[str, int] = Field(
        description="by split; `unassigned`: samples of uploads that name no split"
    )
    steps: int = Field(ge=1, description="of the longest sample")
    shortest: int = Field(ge=1, description="steps of the shortest sample")
    features: int = Field(ge=1, description="numbers per step")
    outputs: int = Field(ge=1, description="classes, labels, or numbers to be predicted")
    classes: tuple[str, ...] | None = Field(
        default=None, description="names of the classes or labels, in the order of their numbers"
    )
    class_counts: tuple[int, ...] | None = Field(
        default=None, description="samples of each class or label"
    )
    missing_values: int = Field(default=0, ge=0, description="that were there and were replaced")
    replacements: tuple[float, ...] | None = Field(
        default=None,
        description="by feature, the number in place of a missing value; null where those are "
        "refused, and of uploads that were read before this was kept",
    )

    @model_validator(mode="after")
    def _one_count_per_class(self) -> Self:
        if (self.classes is None) != (self.class_counts is None) or (
            self.classes is not None
            and self.class_counts is not None
            and len(self.classes) != len(self.class_counts)
        ):
            raise ValueError("classes and class_counts must be of one length, or both be null")
        return self


ARRAYS: Final = "arrays"
"""What stands for a problem in the facts of an upload of arrays."""


class ArrayPort(Spec):
    """An array of an upload, for an input of a network or for labels."""

    name: str
    type: str = Field(description="of its elements, as numpy calls it: float32")
    shape: tuple[int, ...] = Field(description="of one sample")


class ArrayFacts(Spec):
    """What an upload of arrays holds, for studies of a network from an ONNX file."""

    problem: Literal["arrays"] = "arrays"
    samples: int = Field(ge=1, description="of each array")
    arrays: tuple[ArrayPort, ...] = Field(description="by name")


AnyDatasetFacts: TypeAlias = Annotated[DatasetFacts | ArrayFacts, Field(discriminator="problem")]
"""What an upload holds, told apart by `problem`."""


class SamplePreview(Spec):
    """The beginning of one sample, as it is shown to its owner."""

    split: str | None = Field(description="null: of an upload that names no split")
    steps: int = Field(ge=1, description="of the whole sample")
    values: tuple[tuple[float, ...], ...] = Field(
        description="the first features of the first steps, to 6 digits: `[steps][features]`"
    )
    target: str | tuple[float, ...] | tuple[str, ...] | None = Field(
        description="a class's name, numbers, or the names of labels; null for forecasting"
    )
