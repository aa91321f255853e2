"""What runs a model while it is measured: one file for each runtime, the registry here."""

from collections.abc import Mapping

from search.documents.runtimes import RuntimeName
from search.measuring.runtimes.c_files import CFiles
from search.measuring.runtimes.onnxruntime_files import OnnxRuntime
from search.measuring.runtimes.plain_torch import PlainTorch
from search.measuring.runtimes.reflectory import Reflectory
from search.measuring.runtimes.runtime import Runtime, Subject

RUNTIMES: Mapping[RuntimeName, Runtime] = {
    "reflectory": Reflectory(),
    "onnxruntime": OnnxRuntime(),
    "c": CFiles(),
    "torch": PlainTorch(),
}
"""By the name that studies call them by."""

__all__ = ["RUNTIMES", "Runtime", "Subject"]
