"""A fork server that imported something which started a thread."""

import sys
import threading
import time

from search.agents.forking.loop import connect, serve
from tests.search.agents.executors.scripted import run

if __name__ == "__main__":
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    serve(connect(int(sys.argv[1])), run)
