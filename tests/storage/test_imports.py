"""What importing the package brings with it."""

import subprocess
import sys

_ASK = """
import sys
import storage.{module}
print([name for name in ("torch", "optuna", "fastapi", "pydantic") if name in sys.modules])
"""


def test_storage_brings_no_tensors_samplers_or_servers() -> None:
    for module in ("engine", "trials", "attempts", "artifacts"):
        asked = subprocess.run(
            [sys.executable, "-c", _ASK.format(module=module)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert asked.stdout == "[]\n"
