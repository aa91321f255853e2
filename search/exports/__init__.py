"""What a trained model can be had as: one file for each kind; `registry` has their tuples."""

from search.exports.c import C_NAME
from search.exports.export import Export, ExportContext, Made, MadeExport
from search.exports.making import c_files_named, export_trial, exported
from search.exports.missing import file_sizes, missing_files
from search.exports.onnx import OnnxVariant
from search.exports.outcomes import ExportOutcome, outcome
from search.exports.registry import EXPORTS, MADE, MADE_ROLES, MAKERS, NETWORK_EXPORTS, maker_of
from search.exports.verification import Verification

__all__ = [
    "C_NAME",
    "EXPORTS",
    "MADE",
    "MADE_ROLES",
    "MAKERS",
    "NETWORK_EXPORTS",
    "Export",
    "ExportContext",
    "ExportOutcome",
    "Made",
    "MadeExport",
    "OnnxVariant",
    "Verification",
    "c_files_named",
    "export_trial",
    "exported",
    "file_sizes",
    "maker_of",
    "missing_files",
    "outcome",
]
