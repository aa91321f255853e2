"""`cli.md`: every command with its arguments and options, from the command line itself."""

from collections.abc import Iterator
from typing import Any

from service.cli import ENTRIES, application, loaded
from tests.references.markdown import flowing, table, written_by


def page() -> Iterator[str]:
    """The lines of the page."""
    yield "# Commands"
    yield ""
    yield written_by("every command of `reflectory`, from the command line itself")
    yield ""
    yield flowing(str(application.info.epilog))
    panels = dict.fromkeys(entry.panel for entry in ENTRIES.values() if entry.panel is not None)
    for panel in panels:
        yield ""
        yield f"## {panel}"
        names = [name for name, entry in ENTRIES.items() if entry.panel == panel]
        yield ""
        yield from table(
            ("command", "does"), ((f"`reflectory {name}`", ENTRIES[name].about) for name in names)
        )
        for name in names:
            for way, command in _leaves(loaded(name), name):
                yield from _section(way, command)


def _leaves(command: Any, *way: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield way, command
        return
    for name, inner in command.commands.items():
        if not inner.hidden:
            yield from _leaves(inner, *way, name)


def _section(way: tuple[str, ...], command: Any) -> Iterator[str]:
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    words = " ".join(f"[{_place(one)}]" if not one.required else _place(one) for one in arguments)
    yield ""
    yield f"### reflectory {' '.join(way)}"
    yield ""
    yield f"`reflectory {' '.join((*way, words)).strip()}`"
    yield ""
    yield flowing(str(command.help))
    if command.epilog:
        yield ""
        yield f"{flowing(command.epilog).replace('Example: ', 'Example: `')}`"
    rows = [
        (_name(one), _default(one), flowing(str(getattr(one, "help", None) or "")))
        for one in shown
        if one.name != "help"
    ]
    if rows:
        yield ""
        yield from table(("argument or option", "default", "what it is"), rows)


def _place(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name).upper()


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{_place(parameter)}`"
    return ", ".join(f"`{one}`" for one in (*parameter.opts, *parameter.secondary_opts))


def _default(parameter: Any) -> str:
    default = parameter.default
    if parameter.required:
        return "required"
    if isinstance(default, bool | int | float | str) and default != "":
        return f"`{default}`" if not isinstance(default, bool) else "yes" if default else "no"
    return "none"
