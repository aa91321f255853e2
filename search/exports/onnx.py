"""The ONNX file."""

from importlib.metadata import version
from typing import ClassVar, Final, Literal

from models.exports.files import ChosenForm, ExportedFile, FileParts, onnx_file
from models.network import Network
from search.exports.export import ExportContext, Made, MadeExport
from search.exports.verification import on_random_inputs, verified
from search.training.deliverables import onnx_metadata
from search.training.throughput_spec import Throughput

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
        from models.exports.onnx.export import FileOptions
        from models.exports.onnx.runtime import Session
        from models.exports.onnx.verify import verify

        model, interface = context.model, context.interface
        assert isinstance(model.module, Network)
        exported = ExportedFile.model_validate(context.study.spec.get("export", {}))
        samples = None if interface is None else context.samples
        extra = onnx_metadata(context.task, context.sha256, compared=len(samples or ()))
        parts = FileParts(form=exported.form, interface=interface, extra=extra)
        content = onnx_file(model.module, model.spec, parts, faster=lambda: faster_form(context))
        verify(content, model.module, model.spec, FileOptions(interface=interface))
        if samples is None:
            return Made(content, on_random_inputs(_RUNTIME, version(_RUNTIME)))
        return Made(
            content,
            verified(
                Session(content).run,
                model,
                context.task,
                samples,
                runtime=_RUNTIME,
                runtime_version=version(_RUNTIME),
            ),
        )


def faster_form(context: ExportContext) -> ChosenForm:
    """The form that is faster as the study measures: at its batch size, length and threads."""
    from models.exports.onnx.choice import choose_form

    wanted = Throughput.model_validate(context.study.spec.get("throughput", {}))
    chosen = choose_form(
        context.model.module,
        context.model.spec,
        batch_size=wanted.batch_size,
        sequence_length=wanted.sequence_length,
        threads=wanted.threads,
    )
    return chosen.form
