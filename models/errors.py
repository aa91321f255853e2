"""Errors of the models package.

ModelError
├── SpecError           a spec that cannot be built: change the spec
│   ├── SlotError       a parametrization cannot hold a slot of this size or kind
│   └── SignatureError  an architecture cannot answer what a task asks
├── InputError          a tensor does not fit the model: change the input
├── CheckpointError     a file is not a checkpoint of ours, or is damaged: use another file
├── ConversionError     what a trained network holds cannot be converted: change it or the target
├── GraphRefused        a stranger's ONNX file is not taken: change the file, or use another
├── InterpreterError    torch cannot run an ONNX graph: leave it untrained, or change the graph
├── RoundingError       numbers cannot be rounded, or are not yet: round the model, or mend it
└── ExportError         a model has no faithful file of a format; the message says why
    └── ToolMissing     what such a file is tried with is not here: install it, and ask again
"""


class ModelError(Exception):
    """Root of every error that `models` raises on purpose."""


class SpecError(ModelError, ValueError):
    """A model cannot be built as it is named; the spec has to change."""


class SlotError(SpecError):
    """A parametrization cannot hold a slot of this size or kind."""


class SignatureError(SpecError):
    """An architecture cannot answer what a task asks of it."""


class InputError(ModelError, ValueError):
    """A tensor's shape or type does not fit the model; the input has to change."""


class CheckpointError(ModelError, ValueError):
    """A file is not one of our checkpoints, or its bytes are damaged; use another file."""


class ConversionError(ModelError, ValueError):
    """Trained weights cannot be brought to another form; change them or what they should become."""


class GraphRefused(ModelError, ValueError):
    """A network of somebody else's is not taken; the message says what its file has to change."""


class InterpreterError(ModelError, ValueError):
    """An ONNX graph holds what is not computed with torch; the message names the operator."""


class RoundingError(ModelError, ValueError):
    """A number that is to be rounded is not finite, or one that should be rounded is not."""


class ExportError(ModelError):
    """A file of a model cannot be written or run, or does not compute what the model does."""


class ToolMissing(ExportError):
    """A file cannot be tried here, for a program is missing; that says nothing of the model."""
