"""Errors of the models package.

ModelError
├── SlotError        a parametrization cannot hold a slot of this size: change the spec
├── InputError       a tensor does not fit the model: change the input
└── CheckpointError  a file is not a checkpoint of ours, or is damaged: use another file
"""


class ModelError(Exception):
    """Root of every error that `models` raises on purpose."""


class SlotError(ModelError, ValueError):
    """A parametrization cannot hold a slot of this size; the spec has to change."""


class InputError(ModelError, ValueError):
    """A tensor's shape or type does not fit the model; the input has to change."""


class CheckpointError(ModelError, ValueError):
    """A file is not one of our checkpoints, or its bytes are damaged; use another file."""
