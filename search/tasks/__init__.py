"""The tasks that a study can train for: one file each, and their union, which is the registry."""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from search.tasks.addition import Addition
from search.tasks.copy_tail import CopyTail
from search.tasks.copy_task import Copy
from search.tasks.copy_variable_lag import CopyVariableLag
from search.tasks.copy_variable_length import CopyVariableLength
from search.tasks.dataset import Dataset
from search.tasks.digits import Digits
from search.tasks.language import Language
from search.tasks.mnist import Mnist
from search.tasks.multilabel import Multilabel
from search.tasks.samples import Batch, Samples, Split, Splits
from search.tasks.sources import DataSources, DownloadProgress, Mirror
from search.tasks.task import Criterion, Meter, Metric, Task
from search.tasks.ucr import Ucr

_Variants: TypeAlias = (
    Dataset
    | Digits
    | Mnist
    | Addition
    | Copy
    | CopyVariableLength
    | CopyVariableLag
    | CopyTail
    | Language
    | Multilabel
    | Ucr
)

AnyTask: TypeAlias = Annotated[_Variants, Field(discriminator="kind")]

TASKS: tuple[type[_Variants], ...] = get_args(_Variants)
"""The union's classes."""

__all__ = [
    "TASKS",
    "Addition",
    "AnyTask",
    "Batch",
    "Copy",
    "CopyTail",
    "CopyVariableLag",
    "CopyVariableLength",
    "Criterion",
    "DataSources",
    "Dataset",
    "Digits",
    "DownloadProgress",
    "Language",
    "Meter",
    "Metric",
    "Mirror",
    "Mnist",
    "Multilabel",
    "Samples",
    "Split",
    "Splits",
    "Task",
    "Ucr",
]
