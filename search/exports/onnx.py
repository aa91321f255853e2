"""The ONNX file, and the others that a model can be had as on request."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from typing import ClassVar, Final, Literal

from models.exports.files import (
    ChosenForm,
    ExportedFile,
    FileForm,
    FileParts,
    Quantization,
    onnx_file,
    quantization_fault,
)
from models.model import ModelSpec
from models.network import Network
from models.spec import Spec
from search.documents.export_kinds import ONNX
from search.exports.export import ExportContext, Made, MadeExport
from search.exports.verification import OUTPUT, Run, around, on_random_inputs, verified
from search.training.deliverables import onnx_metadata
from search.training.throughput_spec import Throughput
from storage.records import StudyRecord

_RUNTIME: Final = "onnxruntime"


class OnnxExport(MadeExport):
    """An ONNX file, made when it is wanted and verified to compute what the model computes."""

    words: ClassVar[str] = "ONNX file"
    file_name: ClassVar[str] = "model.onnx"

    kind: Literal["onnx"] = "onnx"

    @classmethod
    def make(cls, context: ExportContext) -> Made:
        """The model as a graph, which is run in onnxruntime before anybody gets it."""
        parts = FileParts(form=_study_form(context.study), interface=context.interface)
        return _made(context, parts)


class OnnxVariant(Spec):
    """An ONNX file other than the one that a study makes for each point of its front."""

    words: ClassVar[str] = OnnxExport.words

    raw: bool = False
    """From the network's own input to its output, without the interface."""
    guard: bool = False
    """Batches may be empty."""
    form: FileForm | None = None
    """None: as the study's `export.form` says."""
    quantization: Quantization = "none"

    def role(self, study: StudyRecord) -> str:
        """The artifact's role: that of the study's own file where nothing is different."""
        form = None if self.form == _study_form(study) else self.form
        return self.model_copy(update={"form": form})._role()

    def _role(self) -> str:
        words = (
            ONNX,
            "raw" if self.raw else None,
            "guard" if self.guard else None,
            self.form,
            None if self.quantization == "none" else self.quantization,
        )
        return ".".join(word for word in words if word is not None)

    def quantization_fault(self, model: ModelSpec) -> str | None:
        """Why a model's file cannot be quantized so; None where it can."""
        return quantization_fault(model, self.quantization)

    def make(self, context: ExportContext) -> Made:
        """The file, verified as the study's own is.

        Raises:
            ExportError: this model has no such file.
        """
        return _made(
            context,
            FileParts(
                form=self.form or _study_form(context.study),
                interface=None if self.raw else context.interface,
                guard=self.guard,
                quantization=self.quantization,
            ),
        )

    @classmethod
    def all(cls) -> Mapping[str, "OnnxVariant"]:
        """Every one by its role, but for the study's own."""
        switches: tuple[bool, ...] = (False, True)
        forms: tuple[FileForm | None, ...] = (None, "auto", "node", "loop")
        quantizations: tuple[Quantization, ...] = ("none", "qdq")
        found: dict[str, OnnxVariant] = {}
        for raw, guard, form, quantization in itertools.product(
            switches, switches, forms, quantizations
        ):
            variant = cls(raw=raw, guard=guard, form=form, quantization=quantization)
            found[variant._role()] = variant
        del found[ONNX]
        return found


def faster_form(context: ExportContext, quantization: Quantization = "none") -> ChosenForm:
    """The form that is faster as the study measures: at its batch size, length and threads."""
    from models.exports.onnx.choice import choose_form

    wanted = Throughput.model_validate(context.study.spec.get("throughput", {}))
    chosen = choose_form(
        context.model.module,
        context.model.spec,
        batch_size=wanted.batch_size,
        sequence_length=wanted.sequence_length,
        threads=wanted.threads,
        quantization=quantization,
    )
    return chosen.form


def _study_form(study: StudyRecord) -> FileForm:
    return ExportedFile.model_validate(study.spec.get("export", {})).form


def _made(context: ExportContext, parts: FileParts) -> Made:
    # A process that never exports, as workers do not, never waits for these libraries.
    from models.exports.onnx.export import FileOptions
    from models.exports.onnx.runtime import Session
    from models.exports.onnx.verify import verify

    model, interface = context.model, context.interface
    assert isinstance(model.module, Network)
    samples = None if interface is None else context.samples
    extra = onnx_metadata(context.task, context.sha256, compared=len(samples or ()))
    content = onnx_file(
        model.module,
        model.spec,
        replace(parts, extra=extra),
        faster=lambda: faster_form(context, parts.quantization),
    )
    options = FileOptions(interface=parts.interface, guard=parts.guard)
    verify(content, model.module, model.spec, options)
    runtime = {"runtime": _RUNTIME, "runtime_version": version(_RUNTIME)}
    if interface is None or samples is None:
        return Made(content, on_random_inputs(**runtime))
    session = Session(content)
    run: Run = session.run
    if parts.interface is None:
        run = around(lambda x: session.run(x)[OUTPUT], interface, model.spec)
    return Made(content, verified(run, model, context.task, samples, **runtime))
