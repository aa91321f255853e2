"""`python -m tests.hostile --quick`: all of it, less of each."""

import sys
from pathlib import Path

from tests.hostile.run import QUICK, attack


def test_nobody_without_a_key_costs_the_server_anything(tmp_path: Path) -> None:
    """How soon it answers depends on the machine too; the program itself asks for that."""
    checks = attack(tmp_path, QUICK, tell=sys.stdout.write)
    broken = [check for check in checks if not check.holds and not check.is_timing]
    assert broken == []
