"""The base of every document that names a model, and the sizes that the documents speak of."""

from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Spec(BaseModel):
    """A frozen document; unknown keys are refused and numbers are never made of strings."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class Signature(Spec):
    """What a task demands of a model: the shapes at both ends.

    A sequence model maps `[B, T, input_size]` to `[B, output_size]` (`last`) or to
    `[B, T, output_size]` (`every`).
    """

    input_size: int = Field(ge=1, description="features per step")
    sequence_length: int = Field(
        ge=1, description="steps per sample; recurrent models run at any other length too"
    )
    output_size: int = Field(
        ge=1, description="numbers per prediction (classes for a classification)"
    )
    output_steps: Literal["last", "every"] = Field(
        default="last",
        description="whether the model answers after the last step or after every step",
    )


@dataclass(frozen=True)
class SlotSize:
    """The size of one weight slot W [out_features, in_features], now and at most over a study.

    Search ranges are drawn from the largest sizes, which stay the same over a study, and what is
    drawn is cut to what this slot holds.
    """

    in_features: int
    out_features: int
    largest_in: int
    largest_out: int

    @classmethod
    def fixed(cls, in_features: int, out_features: int) -> "SlotSize":
        """A slot whose size does not vary over the study."""
        return cls(in_features, out_features, in_features, out_features)

    @property
    def smaller_side(self) -> int:
        """The smaller of the two sides of this slot."""
        return min(self.in_features, self.out_features)

    @property
    def largest_smaller_side(self) -> int:
        """The smaller of the two sides of the largest slot of the study."""
        return min(self.largest_in, self.largest_out)


def kind_of(variant: type[BaseModel]) -> str:
    """The name that tells a variant apart in its union: the default of its `kind` field."""
    kind = variant.model_fields["kind"].default
    assert isinstance(kind, str)
    return kind
