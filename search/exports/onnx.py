"""The ONNX file."""

from importlib.metadata import version
from typing import ClassVar, Final, Literal

from search.exports.export import ExportContext, Made, MadeExport
from search.exports.verification import on_random_inputs, verified

_RUNTIME: Final = "onnxruntime"


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
        from models.exports.onnx.runtime import Session
        from models.exports.onnx.verify import verify

        model, options = context.model, FileOptions(interface=context.interface)
        told = {"checkpoint_sha256": context.sha256, "reflectory.task": context.task.kind}
        content = export(model.module, model.spec, options, extra=told)
        verify(content, model.module, model.spec, options)
        if context.interface is None or context.samples is None:
            return Made(content, on_random_inputs(_RUNTIME, version(_RUNTIME)))
        return Made(
            content,
            verified(
                Session(content).run,
                model,
                context.task,
                context.samples,
                runtime=_RUNTIME,
                runtime_version=version(_RUNTIME),
            ),
        )
