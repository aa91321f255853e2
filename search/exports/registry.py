"""The registry: which kinds of files a trained model can be had as.

A new kind is one file with a `MadeExport`, and its name in `MADE`.
"""

from typing import Final

from models.spec import kind_of
from search.exports.answered_samples import ExampleExport
from search.exports.c import CExport
from search.exports.checkpoint import CheckpointExport
from search.exports.dense import DenseExport
from search.exports.export import Export, MadeExport
from search.exports.onnx import OnnxExport, OnnxVariant
from search.exports.onnx_stream import OnnxStreamExport

MADE: Final[tuple[type[MadeExport], ...]] = (
    OnnxExport,
    OnnxStreamExport,
    CExport,
    DenseExport,
    ExampleExport,
)
"""Kinds that are made of a checkpoint when they are wanted."""

EXPORTS: Final[tuple[type[Export], ...]] = (CheckpointExport, *MADE)
"""All kinds; none of them has settings."""

NETWORK_EXPORTS: Final[tuple[type[Export], ...]] = (OnnxExport,)
"""Kinds that a trial of a network of others is had as: the file that was evaluated."""

MAKERS: Final = {kind_of(export): export for export in MADE}
"""By role."""

VARIANTS: Final = OnnxVariant.all()
"""Files that are made on request and belong to no folder, by role."""

MADE_ROLES: Final = (*MAKERS, *VARIANTS)
"""Roles of all that is made of a checkpoint."""


def maker_of(role: str) -> type[MadeExport] | OnnxVariant:
    """What makes the file of a role of `MADE_ROLES`."""
    return VARIANTS[role] if role in VARIANTS else MAKERS[role]
