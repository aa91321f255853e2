"""The ONNX file."""

from typing import ClassVar, Literal

from search.exports.export import ExportContext, Made, MadeExport


class OnnxExport(MadeExport):
    """An ONNX file, made when it is wanted and verified to compute what the model computes."""

    words: ClassVar[str] = "ONNX file"
    file_name: ClassVar[str] = "model.onnx"

    kind: Literal["onnx"] = "onnx"

    @classmethod
    def make(cls, context: ExportContext) -> Made:
        """The model as a graph, which is run in onnxruntime before anybody gets it."""
        # Whoever never exports, as workers do not, never waits for these libraries.
        from models.exports.onnx.export import FileOptions, export
        from models.exports.onnx.verify import verify

        model = context.model
        options = FileOptions(interface=model.interface)
        extra = {"checkpoint_sha256": context.sha256}
        content = export(model.module, model.spec, options, extra=extra)
        verify(content, model.module, model.spec, options)
        return Made(content)
