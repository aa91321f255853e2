"""What importing the package brings with it."""

import subprocess
import sys

_ASK = """
import importlib, pkgutil, sys
import storage
for found in pkgutil.walk_packages(storage.__path__, "storage."):
    # Alembic alone imports these, and boto3 is an extra.
    if ".migrations." not in found.name and ".bucket" not in found.name:
        importlib.import_module(found.name)
print([name for name in ("torch", "optuna", "fastapi", "pydantic") if name in sys.modules])
"""


def test_storage_brings_no_tensors_samplers_or_servers() -> None:
    asked = subprocess.run([sys.executable, "-c", _ASK], capture_output=True, text=True, check=True)
    assert asked.stdout == "[]\n"
