"""Compressing a trained network: what a study says of it, and what a trial of such a study is."""

from typing import Literal, TypeAlias

from pydantic import ConfigDict, Field

from models.architectures import AnyArchitecture
from models.parameter_sampler import ParameterSampler
from models.spec import Spec
from search.errors import OriginalUnresolved

Layers: TypeAlias = Literal["shared", "each"]

ORIGINAL_TRIAL = 0
"""The number of the trial that is the network itself, as it was uploaded."""

MOST_LAYERS_APART = 64
"""Layers that may have dimensions of their own: samplers model all dimensions jointly."""


class Distillation(Spec):
    """How far a trial learns from the original's answers (Hinton et al., arXiv:1503.02531).

    `(1 - w) L + w S` with the task's loss L: S compares the model's answers with the original's,
    of classes and labels `T^2 KL` of the distributions softened by T, of numbers the mean squared
    difference.
    """

    temperature: float = Field(
        default=2.0, gt=0, le=100, description="T: what logits are divided by"
    )
    distillation_weight: float = Field(default=0.5, ge=0, le=1, description="w")

    @classmethod
    def suggest(cls, sampler: ParameterSampler) -> "Distillation":
        """Draw the temperature (log-uniform) and the weight."""
        return cls(
            temperature=sampler.real("temperature", 1.0, 10.0, log=True),
            distillation_weight=sampler.real("distillation_weight", 0.0, 1.0),
        )


class Compression(Spec):
    """What a trial of a compressing study begins with."""

    sha256: str = Field(
        pattern="^[0-9a-f]{64}$", description="of the original's checkpoint, with plain matrices"
    )
    calibration_samples: int = Field(
        ge=1, description="training samples whose answers the conversion keeps"
    )
    distillation: Distillation | None = Field(
        default=None, description="null: the original teaches nothing beyond the start"
    )
    is_original: bool = Field(
        default=False, description="whether the trial is the original itself, which is not trained"
    )


class OriginalFacts(Spec):
    """What is known of an uploaded model when a study that compresses it is submitted."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of its checkpoint")
    architecture: AnyArchitecture = Field(description="in full, as every trial has it")


class Compress(Spec):
    """A study that compresses a trained network: every trial starts from its conversion."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"model": "5d41402abc4b"}]})

    model: str = Field(
        pattern="^[A-Za-z0-9_-]{1,64}$", description="what /v1/models answered to the upload"
    )
    layers: Layers = Field(
        default="shared",
        description="shared: what is drawn of a parametrization counts for all layers alike; each: "
        "every layer has dimensions of its own, such as `low_rank.0.d` and `low_rank.1.d`, for "
        "which `low_rank.d` or `d` in `space` stands where it has no name of its own there; for "
        f"models of at most {MOST_LAYERS_APART} layers",
    )
    distillation: bool = Field(
        default=False,
        description="whether trials learn from the original's answers beside the task's own; adds "
        "`compress.temperature` and `compress.distillation_weight` to the space",
    )
    calibration_samples: int = Field(
        default=256,
        ge=1,
        le=65536,
        description="so many training samples, the first ones, are shown to the original: low_rank "
        "and low_rank_diagonal keep its answers to them rather than its weights, and reports tell "
        "what each layer's answers lose",
    )
    facts: OriginalFacts | None = Field(
        default=None,
        description="what follows from the model; filled in when a study is submitted",
    )

    @property
    def original(self) -> OriginalFacts:
        """What is known of the model.

        Raises:
            OriginalUnresolved: nobody looked at it yet.
        """
        if self.facts is None:
            raise OriginalUnresolved(f"nobody looked at the model {self.model} yet")
        return self.facts
