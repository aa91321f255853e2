# noqa: INP001 -- a program of the build, in no package
"""What hatch calls when it builds a wheel: the kernels' libraries and the documentation go into it.

`REFLECTORY_WHEEL_KERNELS=all` makes it an error that a compiler is missing; without it the wheel
has those for which there is one.
"""

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelsHook(BuildHookInterface[Any]):
    """Builds the libraries below `build/` and names them as files of the package."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a wheel is put together; an editable install builds its own when first used."""
        if version == "editable":
            return
        # hatch runs this file by itself, in an environment of its own.
        sys.path.insert(0, self.root)
        from models.kernels.prebuilt import build_all

        # The server shows it under /help.
        build_data["force_include"][str(Path(self.root) / "deploy" / "docs")] = "service/help"
        every = os.environ.get("REFLECTORY_WHEEL_KERNELS") == "all"
        for path in build_all(Path(self.root) / "build" / "kernels", every=every):
            build_data["force_include"][str(path)] = f"models/kernels/prebuilt/{path.name}"
