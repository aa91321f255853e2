"""The files of `deploy/` as documents, and what the program knows by name."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from service.cli import ENTRIES, loaded
from service.settings import Settings

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"

_COMMAND_LINE = {"REFLECTORY_KEY", "REFLECTORY_SERVER"}
"""What commands that speak to a server read."""
_KERNELS = {
    "REFLECTORY_KERNELS",
    "REFLECTORY_WHEEL_KERNELS",
    "REFLECTORY_KERNEL_CACHE",
    "REFLECTORY_BACKEND",
}
"""What every process that runs models reads; `test_kernel_variables_are_read` holds that."""


def texts() -> Mapping[str, str]:
    """Every file of `deploy/` that a site is made from or that tells how, by its name."""
    files = (path for path in DEPLOY.rglob("*") if path.is_file())
    return {
        str(path.relative_to(DEPLOY)): path.read_text()
        for path in files
        if path.suffix not in (".pyc", ".svg", ".png")
        and (not path.name.startswith(".env") or path.name == ".env.example")
        and path.relative_to(DEPLOY).parts[:2] != ("docs", "benchmarks")
    }


def compose() -> dict[str, Any]:
    """The compose file, with what its parts share put into each."""
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def manifests() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every Kubernetes object with the file that it is in; not kustomize's own document."""
    for path in sorted((DEPLOY / "kubernetes").glob("*.yaml")):
        if path.name == "kustomization.yaml":
            continue
        for document in yaml.safe_load_all(path.read_text()):
            yield path.name, document


@cache
def known_variables() -> frozenset[str]:
    """Every variable of the environment that the program reads."""
    settings = {
        str(field.validation_alias or f"REFLECTORY_{name.upper()}")
        for name, field in Settings.model_fields.items()
    }
    options = {
        variable
        for name in ENTRIES
        for command in _leaves(loaded(name))
        for parameter in command.params
        for variable in _words(parameter.envvar)
    }
    return frozenset(settings | options | _COMMAND_LINE | _KERNELS)


def known_options(words: list[str]) -> set[str]:
    """The options of the command that stands at the beginning of `words`.

    Raises:
        KeyError: there is no such command.
    """
    command: Any = loaded(words[0])
    options = {"--help"}
    for word in words[1:]:
        if not hasattr(command, "commands"):
            break
        command = command.commands[word]
    for parameter in command.params:
        options |= {option for option in parameter.opts if option.startswith("-")}
    return options


def invocations(text: str) -> Iterator[list[str]]:
    """Every `reflectory <command> ...` that a text of `deploy/` shows, as words."""
    patterns = (
        r"`reflectory ([a-z][^`\n]*)`",
        r"^(?:[A-Z_]+=\S+ )*(?:\S*/)?reflectory ([a-z].*)$",
        r"run --rm cli ([a-z][^`\n]*)",
        r"exec \S+ -- reflectory ([a-z].*)$",
        r"^ExecStart=\S*/reflectory ([a-z].*)$",
    )
    for pattern in patterns:
        for found in re.findall(pattern, text, re.MULTILINE):
            yield found.split()


def _leaves(command: Any) -> Iterator[Any]:
    if hasattr(command, "commands"):
        for inner in command.commands.values():
            yield from _leaves(inner)
    else:
        yield command


def _words(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else list(value)
