"""Reflectory: smaller, faster versions of recurrent and plain networks, searched on a server.

    from reflectory import Client

    with Client("http://127.0.0.1:8080") as client:
        study = client.submit({"task": {"kind": "digits"}})
        study.wait(progress=True)
        study.best(max_quality_loss=0.01).download("small")

`Client` and `AsyncClient` are here after `pip install reflectory`. `load` and `compress`, for
models in Python, need `reflectory[models]`.
"""

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from models import compress
    from models.checkpoint import load
    from service.client import AsyncClient, Client, ClientError, Study, StudyFailed, Trial

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "Study",
    "StudyFailed",
    "Trial",
    "compress",
    "load",
]

_PLACES: Mapping[str, str] = {
    **dict.fromkeys(
        ("AsyncClient", "Client", "ClientError", "Study", "StudyFailed", "Trial"), "service.client"
    ),
    "compress": "models",
    "load": "models.checkpoint",
}
_OURS: Mapping[str, str] = {
    "models": "parametrizations",
    "search": "documents",
    "service": "client",
    "storage": "records.py",
}
"""By package, what ours has in its folder."""


def __getattr__(name: str) -> Any:
    """Load what is asked for, and nothing else.

    Raises:
        AttributeError: there is no such name.
        ImportError: a file of the user's hides one of our packages, or an extra is not installed.
    """
    if name not in _PLACES:
        raise AttributeError(
            f"module 'reflectory' has no attribute {name!r}; it has {', '.join(__all__)}"
        )
    _refuse_hidden_packages()
    try:
        return getattr(import_module(_PLACES[name]), name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in _OURS:
            raise
        raise ImportError(
            f"reflectory.{name} needs {package}, which is not installed: "
            "pip install 'reflectory[models]'"
        ) from error


def __dir__() -> list[str]:
    """What is public here."""
    return __all__


def _refuse_hidden_packages() -> None:
    for package, has in _OURS.items():
        found = find_spec(package)
        if found is None:
            continue
        folders = [Path(place) for place in found.submodule_search_locations or ()]
        if not any((folder / has).exists() for folder in folders):
            place = found.origin or ", ".join(map(str, folders))
            raise ImportError(
                f"{place} hides the package {package!r} of Reflectory: rename it, or start Python "
                "from another folder"
            )
