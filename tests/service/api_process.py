"""`python -m tests.service.api_process <settings> <descriptor>`: one API process on a socket."""

import socket
import sys

from service.processes.api_process import run_api
from service.settings import Settings

if __name__ == "__main__":
    run_api(
        Settings.model_validate_json(sys.argv[1]),
        listener=socket.socket(fileno=int(sys.argv[2])),
    )
