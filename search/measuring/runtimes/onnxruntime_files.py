"""Models as onnxruntime runs their ONNX files."""

from importlib.metadata import version
from typing import Any

import torch

from models.errors import ExportError
from models.model import ModelSpec
from search.measuring.runtimes.runtime import SEED, Runtime, Subject, input_of
from search.training.jobs import MeasureJob

_FORMS = {"Scan": "loop", "GRU": "node", "LSTM": "node", "RNN": "node"}
"""Operator -> how the weights of a recurrence stand in a file that has it."""


class OnnxRuntime(Runtime):
    """The file in a session of its own, on the CPU."""

    def version(self) -> str:
        """That of the library."""
        return version("onnxruntime")

    def subject(self, model: ModelSpec, job: MeasureJob, device: torch.device) -> Subject:  # noqa: ARG002 -- a CPU
        """The file of a model, fed with an array that is made once."""
        # Most workers never measure so: they wait for none of these libraries.
        import onnx
        import onnxruntime  # pyright: ignore[reportMissingTypeStubs]

        from models.exports.onnx.export import INPUT, export

        content = export(model.build(seed=SEED), model)
        runtime: Any = onnxruntime  # the library has no types
        options = runtime.SessionOptions()
        options.intra_op_num_threads = job.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        try:
            session = runtime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        # Its errors have no common root but this one.
        except Exception as error:
            raise ExportError(f"onnxruntime does not load the ONNX file: {error}") from error
        x = input_of(job, model, torch.Generator().manual_seed(SEED)).numpy()

        def call() -> None:
            session.run(None, {INPUT: x})

        operators = [node.op_type for node in onnx.load_from_string(content).graph.node]
        form = next((_FORMS[name] for name in operators if name in _FORMS), None)
        return Subject(call, ("onnxruntime",), (), "float32", form=form)
