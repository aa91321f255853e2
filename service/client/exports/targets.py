"""Where results go: a new target is a file beside this one and a name here."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from service.client.exports import to_mlflow, to_tensorboard, to_wandb
from service.client.exports.runs import Run

Target: TypeAlias = Literal["mlflow", "wandb", "tensorboard"]

TARGETS: Mapping[Target, Callable[[Sequence[Run], str | None], str]] = {
    "mlflow": to_mlflow.write,
    "wandb": to_wandb.write,
    "tensorboard": to_tensorboard.write,
}
"""By name, what writes runs to a place and says where they are."""
