"""A fork server that imported something which started a thread."""

import sys
import threading
import time

from search.executors.forking import connect, serve
from tests.search.executors.scripted import run

if __name__ == "__main__":
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    serve(connect(int(sys.argv[1])), run)
