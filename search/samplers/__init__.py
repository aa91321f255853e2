"""The samplers that a study may name: one file each, and this union is the registry."""

from typing import Annotated

from pydantic import Field

from search.samplers.random import Random
from search.samplers.tpe import Tpe

AnySampler = Annotated[Tpe | Random, Field(discriminator="kind")]

__all__ = ["AnySampler", "Random", "Tpe"]
