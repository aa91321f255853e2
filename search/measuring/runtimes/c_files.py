"""Models as their C files, compiled where they are measured."""

import ctypes
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import torch
from torch import Tensor

from models.architectures import Architecture
from models.errors import ExportError
from models.exports.c.export import CFile, export, fault
from models.exports.c.toolchain import FAST, compiler, described, run, write
from models.model import ModelSpec
from search.measuring.runtimes.runtime import SEED, Runtime, Subject, input_of
from search.training.jobs import MeasureJob

_NAME: Final = "model"
_CALLS: Final = "calls"

# A file of its own, so that the compiler cannot leave out a call whose answer is known already.
_SOURCE: Final = """\
#include <stdint.h>

#include "model.h"

void calls(const READS *x, float *y, const int *sizes, int count)
{
    static model_state state;
    const int samples = sizes[0], numbers = sizes[1], steps = sizes[2], answers = sizes[3];
    while (count-- > 0) {
        int n;
        for (n = 0; n < samples; n++) {
            const READS *const from = x + n * numbers;
            float *const to = y + n * answers;
            model_reset(&state);
            ANSWER
        }
    }
}
"""
_LAST = "model_run(&state, from, steps);\n            model_answer(&state, to);"
_EVERY = "model_run(&state, from, steps, to);"


class CFiles(Runtime):
    """The file as a library in this process, on one thread of the CPU."""

    def version(self) -> str:
        """That of what writes the files."""
        return version("reflectory")

    def compiler(self) -> str | None:
        """That of this machine, with its flags."""
        return described(FAST)

    def fault(self, architecture: Architecture) -> str | None:
        """What nothing writes."""
        return fault(architecture)

    def subject(self, model: ModelSpec, job: MeasureJob, device: torch.device) -> Subject:  # noqa: ARG002 -- a CPU
        """A whole batch in a call, one sample after the other, each from the first state on."""
        x = input_of(job, model, torch.Generator().manual_seed(SEED))
        batch = CompiledBatch(export(model.build(seed=SEED).eval(), model, name=_NAME), model, x)
        return Subject(lambda: batch.run(1), ("c",), (), "float32", form="loop", repeated=batch.run)


class CompiledBatch:
    """A C file, compiled and loaded, with a batch that it answers."""

    def __init__(self, file: CFile, model: ModelSpec, x: Tensor) -> None:
        """Compile a file whose name is `model`, for samples x `[B, T, ...]`.

        Raises:
            ToolMissing: there is no C compiler.
            ExportError: it refuses the file, or what it made cannot be loaded.
        """
        samples, steps = x.shape[:2]
        every = model.signature.output_steps == "every"
        # A model that reads tokens is given whole numbers of 32 bits.
        self._x = x.contiguous() if x.is_floating_point() else x.to(torch.int32)
        self.answers = torch.empty(samples, steps if every else 1, model.signature.output_size)
        """`[B, T or 1, out]`, once it has run"""
        self._sizes = torch.tensor(
            [samples, self._x[0].numel(), steps, self.answers[0].numel()], dtype=torch.int32
        )
        self._library = _library(file, model)
        self._library.calls.restype = None
        self._given = [
            ctypes.c_void_p(tensor.data_ptr()) for tensor in (self._x, self.answers, self._sizes)
        ]

    def run(self, count: int) -> None:
        """Answer the whole batch so often."""
        self._library.calls(*self._given, count)


def _library(file: CFile, model: ModelSpec) -> ctypes.CDLL:
    """A library of the file and of `_SOURCE`; it stays loaded when its file is gone."""
    words = {
        "READS": "float" if model.signature.vocabulary is None else "int32_t",
        "ANSWER": _EVERY if model.signature.output_steps == "every" else _LAST,
    }
    source = _SOURCE
    for word, meaning in words.items():
        source = source.replace(word, meaning)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write(file, folder)
        (folder / f"{_CALLS}.c").write_text(source)
        library = folder / f"{_NAME}.so"
        made_of = [f"{_NAME}.c", f"{_CALLS}.c", "-o", library.name]
        run([compiler(), *FAST, "-shared", "-fPIC", *made_of], folder)
        try:
            return ctypes.CDLL(str(library))
        except OSError as error:
            raise ExportError(f"a C file that was compiled here is not loaded: {error}") from error
