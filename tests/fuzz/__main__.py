"""`python -m tests.fuzz --examples N --seed S`: what was asked, and every wrong answer."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.fuzz.run import fuzz


def main() -> int:
    """Run once; the exit code is 1 when an answer was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--examples", type=int, default=200, help="per operation and phase")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="reflectory-fuzz-"))
    done = fuzz(folder, examples=given.examples, seed=given.seed)
    sys.stdout.write(f"{done.report}\n{done.cases} cases; the server's log is in {folder}\n")
    return int(done.failed)


if __name__ == "__main__":
    sys.exit(main())
