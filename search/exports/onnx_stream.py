"""The ONNX file of a stream: states go in and come out."""

from typing import ClassVar, Literal

from models.architectures.recurrent import Recurrent
from models.errors import ConversionError
from models.model import ModelSpec
from search.exports.export import ExportContext, Made, MadeExport


class OnnxStreamExport(MadeExport):
    """An ONNX file that reads a sequence in pieces: it takes states and gives the next ones."""

    words: ClassVar[str] = "ONNX file of a stream"
    file_name: ClassVar[str] = "model.stream.onnx"

    kind: Literal["onnx_stream"] = "onnx_stream"

    @classmethod
    def fault(cls, model: ModelSpec) -> str | None:
        """Only recurrent models have a state."""
        if isinstance(model.architecture, Recurrent):
            return None
        return (
            f"{model.architecture.kind} reads a sample as a whole and has no state to go on from; "
            "recurrent architectures have one"
        )

    @classmethod
    def make(cls, context: ExportContext) -> Made:
        """The model as a graph over single steps, which is run in pieces before anybody gets it."""
        from models.exports.onnx.export import FileOptions, export
        from models.exports.onnx.verify import verify

        model = context.model
        fault = cls.fault(model.spec)
        if fault is not None:
            raise ConversionError(fault)
        options = FileOptions(interface=model.interface, stream=True)
        extra = {"checkpoint_sha256": context.sha256}
        content = export(model.module, model.spec, options, extra=extra)
        verify(content, model.module, model.spec, options)
        return Made(content)
