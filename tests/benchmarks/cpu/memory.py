"""What one step takes at its peak, in a process of its own.

`python -m tests.benchmarks.cpu.memory CASE CONTESTANT` prints MB beyond what model and data take.
"""

import dataclasses
import re
import sys
from pathlib import Path

import torch

from tests.benchmarks.cpu.cases import BY_NAME
from tests.benchmarks.cpu.worker import factories

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def main() -> None:
    """Measure what the arguments name, after a small step that loads what has to be loaded."""
    name, contestant = sys.argv[1:]
    torch.set_num_threads(1)
    case = BY_NAME[name]
    small = dataclasses.replace(case, batch=2, steps=min(case.steps, 2))
    factories(small, "train")[contestant]().run()
    run = factories(case, "train")[contestant]().run
    # Sets the peak back to what is resident now.
    _CLEAR.write_text("5")
    before = _kilobytes("VmRSS")
    run()
    sys.stdout.write(f"{(_kilobytes('VmHWM') - before) / 1024:.1f}")


def _kilobytes(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


if __name__ == "__main__":
    main()
