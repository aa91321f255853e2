"""The ONNX file."""

from typing import ClassVar, Literal

from models.exports.files import ChosenForm, ExportedFile, FileParts, onnx_file
from models.network import Network
from search.exports.export import ExportContext, Made, MadeExport
from search.training.taken_away import onnx_metadata
from search.training.throughput_spec import Throughput


class OnnxExport(MadeExport):
    """An ONNX file, made when it is wanted and verified to compute what the model computes."""

    words: ClassVar[str] = "ONNX file"
    file_name: ClassVar[str] = "model.onnx"

    kind: Literal["onnx"] = "onnx"

    @classmethod
    def make(cls, context: ExportContext) -> Made:
        """The model as a graph, which is run in onnxruntime before anybody gets it."""
        # Whoever never exports, as workers do not, never waits for these libraries.
        from models.exports.onnx.choice import choose_form
        from models.exports.onnx.export import FileOptions
        from models.exports.onnx.verify import verify

        network, model = context.model.module, context.model.spec
        assert isinstance(network, Network)
        wanted = Throughput.model_validate(context.study.spec.get("throughput", {}))
        exported = ExportedFile.model_validate(context.study.spec.get("export", {}))
        interface = context.model.interface
        parts = FileParts(
            form=exported.form, interface=interface, extra=onnx_metadata(context.sha256)
        )

        def faster() -> ChosenForm:
            chosen = choose_form(
                network,
                model,
                batch_size=wanted.batch_size,
                sequence_length=wanted.sequence_length,
                threads=wanted.threads,
            )
            return chosen.form

        content = onnx_file(network, model, parts, faster=faster)
        verify(content, network, model, FileOptions(interface=interface))
        return Made(content)
