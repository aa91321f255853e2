"""`settings.md`: every setting with its variable and default, from the class."""

import json
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, SecretStr

from service.settings import Settings
from tests.references.markdown import table, written_by

_DATA_DIR = Path("DATA_DIR")
_HEAD = """\
Settings are read from the environment by `reflectory serve`. The options `--data-dir`, `--host`,
`--port`, `--apis`, `--workers`, `--slots-per-gpu`, `--slot-memory` and `--executor` set the same.
In defaults, `DATA_DIR` is the data directory.

Commands that speak to a server read two variables more: `REFLECTORY_SERVER` names the server, and
`REFLECTORY_KEY` holds the key to one that asks for a key.
"""


def names() -> dict[str, str]:
    """The variable of each setting."""
    prefix = str(Settings.model_config.get("env_prefix", ""))
    return {
        name: str(field.validation_alias or f"{prefix}{name}".upper())
        for name, field in Settings.model_fields.items()
    }


def page() -> Iterator[str]:
    """The lines of the page."""
    yield "# Settings"
    yield ""
    yield written_by("every setting, from the class `Settings`")
    yield ""
    yield _HEAD
    # Neither the environment nor this machine's home has a say.
    defaults = Settings.model_construct(data_dir=_DATA_DIR)
    rows = (
        (f"`{variable}`", _default(name, defaults), str(Settings.model_fields[name].description))
        for name, variable in names().items()
    )
    yield from table(("variable", "default", "what it is"), rows)


def _default(name: str, defaults: Settings) -> str:
    if name == "data_dir":
        return "`~/.local/share/reflectory`"
    value = getattr(defaults, name)
    if value is None or value == () or isinstance(value, SecretStr):
        return "none"
    if isinstance(value, BaseModel):
        given = value.model_dump(exclude_none=True)
        return f"`{json.dumps(given)}`"
    return f"`{str(value).replace(str(_DATA_DIR.absolute()), str(_DATA_DIR))}`"
