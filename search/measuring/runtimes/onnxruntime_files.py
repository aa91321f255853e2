"""Models as onnxruntime runs their ONNX files."""

from collections.abc import Sequence
from importlib.metadata import version

import torch

from models.exports.files import ChosenForm, FileParts, onnx_file
from models.model import ModelSpec
from models.network import Network
from search.measuring.runtimes.runtime import SEED, Runtime, Subject, input_of
from search.training.jobs import MeasureJob


class OnnxRuntime(Runtime):
    """The file in a session of its own, on the CPU."""

    def version(self) -> str:
        """That of the library."""
        return version("onnxruntime")

    def subjects(
        self, model: ModelSpec, job: MeasureJob, device: torch.device
    ) -> Sequence[Subject]:
        """The file in the form that is asked for; in each, where the faster one is."""
        if job.form != "auto":
            return [self.subject(model, job, device)]
        # Most workers never measure so: they wait for none of these libraries.
        from models.exports.onnx.choice import forms_of

        network = model.build(seed=0).eval()
        files: list[tuple[bytes, ChosenForm]] = [
            (_file(network, model, form), form) for form in forms_of(network)
        ]
        files.sort(key=lambda pair: len(pair[0]))  # the smaller one first
        return [_subject(content, model, job, form) for content, form in files]

    def subject(self, model: ModelSpec, job: MeasureJob, device: torch.device) -> Subject:  # noqa: ARG002 -- a CPU
        """The file of a model, fed with an array that is made once."""
        form: ChosenForm = "loop" if job.form == "loop" else "node"
        return _subject(_file(model.build(seed=0).eval(), model, form), model, job, form)


def _file(network: Network, model: ModelSpec, form: ChosenForm) -> bytes:
    return onnx_file(network, model, FileParts(form=form), faster=lambda: form)


def _subject(content: bytes, model: ModelSpec, job: MeasureJob, form: ChosenForm) -> Subject:
    from models.exports.onnx.runtime import Session

    session = Session(content, threads=job.threads)
    x = input_of(job, model, torch.Generator().manual_seed(SEED))

    def call() -> None:
        session.run(x)

    return Subject(call, ("onnxruntime",), (), "float32", form=form)
