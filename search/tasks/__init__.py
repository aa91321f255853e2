"""The tasks that a study can train for: one file each, and their union, which is the registry."""

from typing import Annotated, TypeAlias, get_args

from pydantic import Field

from search.tasks.classification import squared_hinge
from search.tasks.dataset.dataset import Dataset
from search.tasks.download import sha256_of
from search.tasks.images.digits import Digits
from search.tasks.images.mnist import Mnist
from search.tasks.multilabel.multilabel import Multilabel
from search.tasks.raw_samples import MOST_SAMPLE_BYTES, MOST_SAMPLES, SAMPLES_FORMAT, RawSamples
from search.tasks.samples import (
    EVALUATION_ROWS,
    Batch,
    Batches,
    Samples,
    Split,
    Splits,
    take_each,
)
from search.tasks.sources import DatasetShelf, DataSources, DownloadProgress, Mirror
from search.tasks.synthetic.addition import Addition
from search.tasks.synthetic.copy_tail import CopyTail
from search.tasks.synthetic.copy_task import Copy
from search.tasks.synthetic.copy_variable_lag import CopyVariableLag
from search.tasks.synthetic.copy_variable_length import CopyVariableLength
from search.tasks.task import NOT_NEGATIVE, Criterion, MeasuredTask, Meter, Metric, Range, Task
from search.tasks.text.language import Language
from search.tasks.timeseries.ucr import Ucr

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
    "EVALUATION_ROWS",
    "MOST_SAMPLES",
    "MOST_SAMPLE_BYTES",
    "NOT_NEGATIVE",
    "SAMPLES_FORMAT",
    "TASKS",
    "Addition",
    "AnyTask",
    "Batch",
    "Batches",
    "Copy",
    "CopyTail",
    "CopyVariableLag",
    "CopyVariableLength",
    "Criterion",
    "DataSources",
    "Dataset",
    "DatasetShelf",
    "Digits",
    "DownloadProgress",
    "Language",
    "MeasuredTask",
    "Meter",
    "Metric",
    "Mirror",
    "Mnist",
    "Multilabel",
    "Range",
    "RawSamples",
    "Samples",
    "Split",
    "Splits",
    "Task",
    "Ucr",
    "sha256_of",
    "squared_hinge",
    "take_each",
]
