"""Three raw samples with their answers, and the texts that go with them."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from models.errors import ExportError
from search.exports.export import ExportContext, Made, MadeExport
from search.exports.folder.answers import example_of
from search.exports.folder.document import EXAMPLE

_NO_INTERFACE = (
    "the checkpoint does not tell how raw samples become its input: it is of a version that did "
    "not store it"
)
_NO_SAMPLES = "no raw samples were kept of the trial: it was trained by a version that kept none"


class ExampleExport(MadeExport):
    """Three raw validation samples with the model's answers, labels and preprocessing, as JSON."""

    words: ClassVar[str] = "example"
    file_name: ClassVar[str] = EXAMPLE
    parts: ClassVar[tuple[str, ...] | None] = (
        "samples.json",
        "preprocessing.json",
        "labels.json",
    )

    kind: Literal["example"] = "example"

    @classmethod
    def unpacked(cls, content: bytes) -> Mapping[str, bytes]:
        """The document, which a folder tells in several files."""
        return {cls.file_name: content}

    @classmethod
    def make(cls, context: ExportContext) -> Made:
        """Raw samples, answered by the model in single and in double precision."""
        model, samples = context.model, context.samples
        if model.interface is None:
            raise ExportError(_NO_INTERFACE)
        if samples is None:
            raise ExportError(_NO_SAMPLES)
        task = context.study.spec["task"]
        level = task.get("level") if isinstance(task, Mapping) else None
        example = example_of(
            model.module,
            model.spec,
            model.interface,
            samples,
            level=level if isinstance(level, str) else None,
        )
        return Made(example.model_dump_json().encode())
