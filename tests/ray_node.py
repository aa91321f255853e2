"""`python -m tests.ray_node ARGUMENTS...`: one node of a Ray cluster, for as long as stdin is open.

Runs `ray start ARGUMENTS... --block` and adopts all that Ray leaves behind, so that everything ends
with whoever holds the other end of stdin, however that ends.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

import psutil

from search.linux import adopt_orphans

if __name__ == "__main__":
    adopt_orphans()
    command = [str(Path(sys.executable).with_name("ray")), "start", *sys.argv[1:], "--block"]
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    sys.stdin.read()
    me = psutil.Process()
    while below := me.children(recursive=True):
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(below, timeout=1)
        started.poll()
