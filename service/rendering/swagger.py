"""Swagger UI out of an installed wheel: no file of it is ours, or comes from elsewhere."""

from importlib.util import find_spec
from pathlib import Path

_WHEEL = "fastapi_offline"


def swagger_files() -> Path:
    """The folder that `swagger-ui-bundle.js` and `swagger-ui.css` are in.

    Its package is found and not imported.

    Raises:
        ModuleNotFoundError: it is not installed.
    """
    found = find_spec(_WHEEL)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"the server needs {_WHEEL}, which has Swagger UI's files")
    return Path(found.origin).with_name("static")
