"""Files in which layers are stored as chosen, how large they become, and whether they are right.

`written` makes the file of fits, `predicted_bytes` says its size before anything is fitted, and
`verify` runs it in a process of its own.
"""

from models.graphs.writing.fresh_process import FreshRun, fresh_run
from models.graphs.writing.prediction import added_bytes, predicted_bytes
from models.graphs.writing.verification import verify
from models.graphs.writing.written_file import LOWEST_OPSET, METADATA_PREFIX, written

__all__ = [
    "LOWEST_OPSET",
    "METADATA_PREFIX",
    "FreshRun",
    "added_bytes",
    "fresh_run",
    "predicted_bytes",
    "verify",
    "written",
]
