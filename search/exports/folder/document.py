"""What the files of a folder that are texts are made of: one document, made with the model."""

from typing import Any, Final, Literal, TypeAlias

from pydantic import Field

from models.interface import Interface
from models.spec import Spec

FORMAT: Final = "reflectory.example.1"

EXAMPLE: Final = "example.json"
"""What the artifact is called: no file of the folder itself, whose texts are made of it."""

Nested: TypeAlias = Any
"""Numbers in lists of lists; null for a number that is missing."""


class AnsweredSample(Spec):
    """One raw sample, and what the model answers to it."""

    sample: Nested = Field(description="as `preprocessing.json` says; null: a missing number")
    steps: int = Field(ge=1, description="that the network reads of it")
    answer: tuple[float, ...] = Field(
        description="the output's numbers, in their own unit; of an answer at every step, the last"
    )
    label: int | tuple[int, ...] | None = Field(
        description="what is decided: a class's number, 0 or 1 for each label, or null"
    )
    right: int | tuple[float, ...] | None = Field(
        description="what the data say: a class's number, or numbers; null where nothing is asked"
    )
    tolerance: float = Field(
        gt=0, description="by how much another runtime's numbers may differ from the answer's"
    )


class Vocabulary(Spec):
    """What tokens stand for."""

    level: Literal["character", "word"]
    symbols: tuple[str, ...] = Field(description="by number")
    unknown: int | None = Field(description="the number of what is not in it; null: there is none")


class MeanError(Spec):
    """What an interval of a mean over samples follows from."""

    samples: int = Field(ge=2, description="that were looked at")
    deviation: float = Field(ge=0, description="between samples, of the metric of one")


class Example(Spec):
    """Three raw samples with their answers, and what a program around the model needs to know."""

    format: Literal["reflectory.example.1"] = FORMAT
    interface: Interface
    reads_tokens: bool
    recurrent: bool = Field(description="whether samples may be read step by step")
    every_step: bool = Field(description="whether there is an answer at every step")
    samples: tuple[AnsweredSample, ...]
    initial_state: dict[str, Nested] | None = Field(
        description="by name of the stream's inputs, `[layers, n]`; null: there is no state"
    )
    vocabulary: Vocabulary | None
    mean_error: MeanError | None = Field(
        description="null where the metric is no mean over samples that were looked at"
    )
