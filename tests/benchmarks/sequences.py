"""`python -m tests.benchmarks.sequences`: structured networks against torch's own, on one core.

Prints a report in Markdown; `--out FILE` writes it too. `--quick` measures one small case, `--only
TEXT` the cases with a text in their names, and `--rounds N` says how often each is timed. Where an
NVIDIA GPU answers nothing is measured without `--cpu`, for all of this is about CPUs.
"""

import sys

from tests.benchmarks.processes import run_on_cpu

if __name__ == "__main__":
    sys.exit(run_on_cpu("tests.benchmarks.cpu.suite", sys.argv[1:]))
