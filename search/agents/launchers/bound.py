"""`python -m search.agents.launchers.bound PARENT ARGUMENTS...`: Python, bound to its parent.

Becomes `python -P ARGUMENTS...`, to which the kernel sends SIGTERM when the process PARENT ends.
"""

import os
import signal
import sys

from search.linux import die_with_parent

if __name__ == "__main__":
    die_with_parent(signal.SIGTERM)
    if os.getppid() != int(sys.argv[1]):
        sys.exit("the process that started this agent has ended already")
    # -P: a folder `search` or `models` where the parent was started is not ours.
    os.execv(sys.executable, [sys.executable, "-P", *sys.argv[2:]])
