"""A process that owns an executor: starts two attempts, says so, and waits to be killed."""

import sys
import time
from pathlib import Path

from search.agents.executors import LocalExecutor
from tests.search.agents.executors.attempts import SCRIPTED, SLOT, ticket

if __name__ == "__main__":
    executor = LocalExecutor([SLOT], logs=Path(sys.argv[1]), server_module=SCRIPTED)
    executor.start(ticket("wait", "one"), SLOT)
    executor.start(ticket("have_children", "two"), SLOT)
    sys.stdout.write("started\n")
    sys.stdout.flush()
    time.sleep(600)
