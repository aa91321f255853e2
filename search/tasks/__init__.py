"""The tasks that a study can train for: one file each, and their union, which is the registry."""

from typing import Annotated, TypeAlias

from pydantic import Field

from search.tasks.dataset import Dataset
from search.tasks.digits import Digits
from search.tasks.mnist import Mnist
from search.tasks.samples import Batch, Samples, Split, Splits
from search.tasks.sources import DataSources, DownloadProgress, Mirror
from search.tasks.task import Criterion, Meter, Metric, Task

AnyTask: TypeAlias = Annotated[Dataset | Digits | Mnist, Field(discriminator="kind")]

TASKS: tuple[type[Dataset] | type[Digits] | type[Mnist], ...] = (Dataset, Digits, Mnist)
"""The union's classes."""

__all__ = [
    "TASKS",
    "AnyTask",
    "Batch",
    "Criterion",
    "DataSources",
    "Dataset",
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
