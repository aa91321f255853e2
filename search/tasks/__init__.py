"""The tasks that a study can train for: one file each, and their union, which is the registry."""

from typing import Annotated, TypeAlias

from pydantic import Field

from search.tasks.digits import Digits
from search.tasks.mnist import Mnist
from search.tasks.samples import Batch, Samples, Split, Splits
from search.tasks.sources import DataSources, DownloadProgress, Mirror
from search.tasks.task import Criterion, Meter, Metric, Task

AnyTask: TypeAlias = Annotated[Digits | Mnist, Field(discriminator="kind")]

TASKS: tuple[type[Digits] | type[Mnist], ...] = (Digits, Mnist)
"""The union's classes."""

__all__ = [
    "TASKS",
    "AnyTask",
    "Batch",
    "Criterion",
    "DataSources",
    "Digits",
    "DownloadProgress",
    "Meter",
    "Metric",
    "Mirror",
    "Mnist",
    "Samples",
    "Split",
    "Splits",
    "Task",
]
