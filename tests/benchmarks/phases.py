"""`python -m tests.benchmarks.phases`: where a training step's time goes, on one core.

Prints tables in Markdown. `--quick` measures one small case, `--only TEXT|TEXT` the cases with one
of the texts in their names, and `--rounds N` says how often each phase is timed. Where an NVIDIA
GPU answers nothing is measured without `--cpu`.
"""

import sys

from tests.benchmarks.processes import run_on_cpu

if __name__ == "__main__":
    sys.exit(run_on_cpu("tests.benchmarks.cpu.phase_tables", sys.argv[1:]))
