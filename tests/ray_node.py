"""`python -m tests.ray_node ARGUMENTS...`: one node of a Ray cluster, for as long as stdin is open.

Runs `ray start ARGUMENTS... --block` and adopts all that Ray leaves behind, so that everything ends
with whoever holds the other end of stdin, however that ends.
"""

import contextlib
import subprocess
import sys

import psutil

from search.linux import adopt_orphans

if __name__ == "__main__":
    adopt_orphans()
    # Nodes have the Python that starts them, which a script of another environment would not be.
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", *sys.argv[1:], "--block"]
    started = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    sys.stdin.read()
    me = psutil.Process()
    while below := me.children(recursive=True):
        for process in below:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(below, timeout=1)
        started.poll()
