"""`python -m tests.hostile`: attacks a server of its own on loopback, and tells what came of it.

The exit code is 0 only if everything held.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.hostile.run import FULL, QUICK, attack


def main() -> int:
    """Run once, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller bodies, fewer of everything")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="rfl-hostile-"))
    checks = attack(folder, QUICK if given.quick else FULL, tell=sys.stderr.write)
    width = max(len(check.promise) for check in checks)
    for check in checks:
        verdict = "ok  " if check.holds else "FAIL"
        sys.stdout.write(f"{verdict}  {check.promise:<{width}}  {check.measured}\n")
    sys.stdout.write(f"the server's log is {folder / 'data' / 'api.log'}\n")
    return int(not all(check.holds for check in checks))


if __name__ == "__main__":
    sys.exit(main())
