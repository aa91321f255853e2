# noqa: INP001 -- a program of the build, in no package
"""What hatch calls when it builds a wheel.

The module `reflectory`, the libraries of the kernels, the documentation and what trainings of the
papers' rows came to go into it.

The module `reflectory` is a file of `service`, so that the four packages stay where they are.
`REFLECTORY_WHEEL_KERNELS=all` makes it an error that a compiler is missing; without it the wheel
has those for which there is one.
"""

import os
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_MODULE = ("service/reflectory_module.py", "reflectory.py")


class KernelsHook(BuildHookInterface[Any]):
    """Names the module, and the libraries that it builds below `build/`, as files of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before a wheel is put together; an editable install builds its own when first used."""
        source, name = Path(self.root) / _MODULE[0], _MODULE[1]
        if version == "editable":
            build_data["force_include_editable"][str(source)] = name
            return
        build_data["force_include"][str(source)] = name
        # hatch runs this file by itself, in an environment of its own.
        sys.path.insert(0, self.root)
        from models.kernels.prebuilt import build_all

        # The server shows the one under /help, and the other beside what the papers print.
        docs = Path(self.root) / "deploy" / "docs"
        trainings = Path(self.root) / "deploy" / "reproduction"
        build_data["force_include"][str(docs)] = "service/help"
        build_data["force_include"][str(trainings)] = "search/papers/reproduction"
        every = os.environ.get("REFLECTORY_WHEEL_KERNELS") == "all"
        for path in build_all(Path(self.root) / "build" / "kernels", every=every):
            build_data["force_include"][str(path)] = f"models/kernels/prebuilt/{path.name}"
