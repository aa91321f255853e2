"""What all kinds of files of a trained model have in common, and what they are made of."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from models.checkpoint import LoadedModel
from models.interface import Interface
from models.model import ModelSpec
from models.spec import Spec
from search.exports.verification import Verification
from search.tasks import RawSamples, Task
from storage.records import StudyRecord, TrialRecord


@dataclass(frozen=True, kw_only=True)
class ExportContext:
    """A trial's model, and what else files are made of."""

    model: LoadedModel
    """The checkpoint's."""
    sha256: str
    """Of the checkpoint's bytes."""
    study: StudyRecord
    trial: TrialRecord
    task: Task
    """The study's, as it was resolved."""
    samples: RawSamples | None
    """Raw validation samples that training stored; None for trials of earlier programs."""

    @property
    def interface(self) -> Interface | None:
        """What stands around the network; None for trials of earlier programs."""
        return self.model.interface


@dataclass(frozen=True)
class Made:
    """A file."""

    content: bytes
    verification: Verification | None = None
    """How it was compared with the checkpoint; None for what computes nothing."""
    on_device: Mapping[str, int] = field(default_factory=dict[str, int])
    """Bytes that it takes where it runs, by names of `ON_DEVICE`."""


class Export(Spec):
    """A kind of file that a trained model can be had as; its `kind` is the artifact's role."""

    words: ClassVar[str]
    """What messages call the file."""
    file_name: ClassVar[str]
    """In the folder of its trial."""
    parts: ClassVar[tuple[str, ...] | None] = None
    """Where the artifact is several files in one: their names in the folder."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """All that it brings to the folder."""
        return (cls.file_name,) if cls.parts is None else cls.parts

    @classmethod
    def unpacked(cls, content: bytes) -> Mapping[str, bytes]:
        """The files of an artifact, by their names in the folder."""
        return {cls.file_name: content}


class MadeExport(Export):
    """One that is made of the checkpoint when it is wanted."""

    linked_before_made: ClassVar[bool] = False
    """Whether trials link to it as soon as it can be made."""

    @classmethod
    def fault(cls, model: ModelSpec) -> str | None:
        """Why no such file of a model can be; None where it can, as far as its spec tells."""
        del model
        return None

    @classmethod
    @abstractmethod
    def make(cls, context: ExportContext) -> Made:
        """The file; where a study leaves its form to measurement, that decides some of its bytes.

        Raises:
            ExportError: this model has no such file, for a reason to be shown to its user; kept, so
                that nobody tries again.
            ConversionError: the same of what `fault` tells beforehand.
        """
