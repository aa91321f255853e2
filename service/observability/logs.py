"""How the service's processes log: one line per event, its fields with it, to stderr."""

import logging
import sys

from search.logs import LogFormat, lines_of


def configure_logging(process: str, level: str, form: LogFormat = "text") -> None:
    """Send this process's log to stderr. Called once, by the program's entry and nobody else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(lines_of(form, process))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # These say at INFO, for every request or connection, what our own log need not repeat; those of
    # Amazon's library say at DEBUG what a request is signed with.
    for chatty in ("httpx2", "alembic", "boto3", "botocore", "urllib3"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
