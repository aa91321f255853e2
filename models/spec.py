"""The base of every document that names a model, and the sizes that the documents speak of."""

from dataclasses import dataclass
from typing import Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler
from pydantic_core import CoreSchema

_NO_SCHEMAS = frozenset({"default", "metadata", "serialization", "keys_schema"})
"""Parts of a schema that are none, or of JSON's keys, which are text whatever they mean."""


def _have_strict_numbers(node: object) -> None:
    if isinstance(node, dict):
        schema = cast("dict[str, Any]", node)
        if schema.get("type") in ("int", "float"):
            schema["strict"] = True
        for name, part in schema.items():
            if name not in _NO_SCHEMAS:
                _have_strict_numbers(part)
    elif isinstance(node, list | tuple):
        for part in cast("list[object]", node):
            _have_strict_numbers(part)


class Spec(BaseModel):
    """A frozen document; unknown keys are refused, and numbers are made of numbers alone."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: type[BaseModel], handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        """The schema as it is, with strict numbers: neither `true` nor `"1"` is 1.

        Only numbers, since a strict tuple takes no list, which is what JSON has.
        """
        schema = handler(source)
        _have_strict_numbers(schema)
        return schema


class Signature(Spec):
    """What a task demands of a model: the shapes at both ends.

    A sequence model maps `[B, T, input_size]` to `[B, output_size]` (`last`) or to
    `[B, T, output_size]` (`every`). With a vocabulary it reads tokens `[B, T]` instead, and an
    embedding of its own gives each `input_size` numbers.
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
    vocabulary: int | None = Field(
        default=None, ge=1, description="tokens that are read; null: numbers are"
    )


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A place for matrices `[out_features, in_features]` of one shape, stored together.

    A slot holds `layers * gates` matrices, the gates of the first layer first.
    """

    out_features: int
    in_features: int
    gates: int = 1
    """Matrices that act on the same vector, such as the gates of a cell."""
    layers: int = 1
    """How often the gates are repeated, independently of each other."""
    field: Literal["real", "complex"] = "real"
    """Sizes of a complex slot count complex numbers."""
    residual: bool = False
    """Whether the matrix is in a branch that is added to its own input."""
    auxiliary: bool = False
    """Whether the slot is beside the main one: counts and ranks are clamped to what it holds."""
    layer: int = 0
    """The layer of the main slot that an auxiliary one belongs to."""

    @property
    def num_matrices(self) -> int:
        """How many matrices the slot holds."""
        return self.layers * self.gates

    @property
    def smaller_side(self) -> int:
        """The smaller of the two sides."""
        return min(self.in_features, self.out_features)

    def __str__(self) -> str:
        """The size in words, for messages."""
        numbers = "complex " if self.field == "complex" else ""
        return f"{numbers}{self.out_features} x {self.in_features}"


def kind_of(variant: type[BaseModel]) -> str:
    """The name that tells a variant apart in its union: the default of its `kind` field."""
    kind = variant.model_fields["kind"].default
    assert isinstance(kind, str)
    return kind
