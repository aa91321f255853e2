"""A process that owns slots: starts two attempts, says so, and waits to be killed."""

import sys
import time
from pathlib import Path

from tests.search.agents.executors.attempts import Scripted, ticket

if __name__ == "__main__":
    executor = Scripted(Path(sys.argv[1]))
    executor.start(ticket("wait", "one"))
    executor.start(ticket("have_children", "two"))
    sys.stdout.write("started\n")
    sys.stdout.flush()
    time.sleep(600)
