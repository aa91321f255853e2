"""The ONNX file of a stream: states go in and come out."""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import ClassVar, Final, Literal

from torch import Tensor

from models.architectures.recurrent import Recurrent
from models.errors import ConversionError
from models.exports.files import ExportedFile
from models.model import ModelSpec
from models.network import Network
from search.exports.export import ExportContext, Made, MadeExport
from search.exports.onnx import faster_form
from search.exports.verification import (
    check_pieces,
    first_states,
    on_random_inputs,
    single_steps,
    to_own_ends,
    verified,
)
from search.training.deliverables import onnx_metadata

_RUNTIME: Final = "onnxruntime"


class OnnxStreamExport(MadeExport):
    """An ONNX file that reads a sequence in pieces: it takes states and gives the next ones."""

    words: ClassVar[str] = "ONNX file for streams"
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
        from models.exports.onnx.export import NEXT_STATE, STATE, FileOptions, export
        from models.exports.onnx.runtime import Session
        from models.exports.onnx.verify import verify

        model, interface = context.model, context.interface
        samples = None if interface is None else context.samples
        fault = cls.fault(model.spec)
        if fault is not None:
            raise ConversionError(fault)
        exported = ExportedFile.model_validate(context.study.spec.get("export", {}))
        form = faster_form(context) if exported.form == "auto" else exported.form
        options = FileOptions(form=form, interface=interface, stream=True)
        extra = onnx_metadata(context.task, context.sha256, compared=len(samples or ()))
        content = export(model.module, model.spec, options, extra=extra)
        verify(content, model.module, model.spec, options)
        runtime = {"runtime": _RUNTIME, "runtime_version": version(_RUNTIME)}
        if interface is None or samples is None:
            return Made(content, on_random_inputs(**runtime))
        session = Session(content)

        def run(
            x: Tensor, states: Sequence[Tensor]
        ) -> tuple[Mapping[str, Tensor], Sequence[Tensor]]:
            named = {STATE.format(part): state for part, state in enumerate(states)}
            found = session.run(x, None, named)
            following = [found.pop(NEXT_STATE.format(part)) for part in range(len(states))]
            return found, following

        def whole(x: Tensor) -> Mapping[str, Tensor]:
            assert isinstance(model.module, Network)
            return run(x, first_states(model.module, len(x)))[0]

        def answered(raw: Tensor, lengths: Tensor | None) -> Mapping[str, Tensor]:
            return to_own_ends(whole, model.spec, single_steps(interface, raw), lengths)

        checked = verified(answered, model, context.task, samples, **runtime)
        chunks = check_pieces(run, model, samples)
        return Made(content, checked.model_copy(update={"chunks": chunks}))
