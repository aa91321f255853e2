"""Whether pandas is imported by a process that uses no data frame.

scikit-learn imports it where it is installed, and with it a second of start-up and a thread, which
processes that fork others must not have. Users who look at results as frames install it beside the
server.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGE = "pandas"


class _Absent:
    """Answers as if pandas were not installed."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 -- names of the protocol
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Nothing for all other names.

        Raises:
            ModuleNotFoundError: it is asked for pandas.
        """
        if name == _PACKAGE:
            raise ModuleNotFoundError(f"No module named {name!r} in a server's process", name=name)
        return None


def keep_pandas_out() -> None:
    """Have this process, and what it forks, do without pandas. Asking twice is harmless."""
    if not any(isinstance(finder, _Absent) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Absent())
