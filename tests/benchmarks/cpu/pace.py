"""Steps per second of wall time, from an instant that several processes agree on.

`python -m tests.benchmarks.cpu.pace CONTESTANT THREADS BEGIN`
"""

import sys
import time

import torch

from tests.benchmarks.cpu.cases import SEQUENCES
from tests.benchmarks.cpu.peers import contestants

_SECONDS = 6.0


def main() -> None:
    """Print the pace at the first case."""
    name, threads, begin = sys.argv[1:]
    torch.set_num_threads(int(threads))
    run = contestants(SEQUENCES[0], "train")[name]().run
    run()
    run()
    time.sleep(max(0.0, float(begin) - time.time()))
    begun, steps = time.monotonic(), 0
    while time.monotonic() - begun < _SECONDS:
        run()
        steps += 1
    sys.stdout.write(str(steps / (time.monotonic() - begun)))


if __name__ == "__main__":
    main()
