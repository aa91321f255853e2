"""Whether pandas is imported by a process that uses no data frame.

scikit-learn imports it where it is installed, and with it a second of start-up and a thread, which
processes that fork others must not have. Users who look at results as frames install it beside the
server.
"""

import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType

_PACKAGE = "pandas"


class _Unloadable(Loader):
    """What looks for pandas finds it, and importing it fails as if it were not there."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 -- names of the protocol
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Where pandas would come from; nothing for all other names.

        Nothing is raised here: torch asks where packages are, and does not import them.
        """
        return ModuleSpec(name, self) if name == _PACKAGE else None

    def create_module(self, spec: ModuleSpec) -> None:
        """A module as others, into which nothing will come."""

    def exec_module(self, module: ModuleType) -> None:
        """Load nothing.

        Raises:
            ModuleNotFoundError: always.
        """
        name = module.__name__
        raise ModuleNotFoundError(f"No module named {name!r} in a server's process", name=name)


def keep_pandas_out() -> None:
    """Have this process, and what it forks, do without pandas. Asking twice is harmless."""
    if not any(isinstance(finder, _Unloadable) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Unloadable())
