"""How the service's processes log: one line per event, its fields after it, to stderr."""

import logging
import sys

_PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "color_message"}


class _Lines(logging.Formatter):
    """`time level process logger: event field=value ...`."""

    def __init__(self, process: str) -> None:
        super().__init__(
            f"%(asctime)s.%(msecs)03d %(levelname)-7s {process} %(name)s: %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
        )

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's own name
        """The line, with what was given as `extra` after it."""
        fields = {key: value for key, value in vars(record).items() if key not in _PLAIN}
        return " ".join(
            [super().formatMessage(record), *(f"{key}={value!r}" for key, value in fields.items())]
        )


def configure_logging(process: str, level: str) -> None:
    """Send this process's log to stderr. Called once, by the program's entry and nobody else."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines(process))
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # These say at INFO, for every request or connection, what our own log need not repeat.
    for chatty in ("httpx2", "alembic"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
