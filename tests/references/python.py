"""`python.md`: the public names of the client and of the models, from their source."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tests.references.markdown import first_paragraph, table, written_by

_ALL = None

_PLUMBING = {"perform", "give", "ask", "pages", "of", "place", "taken", "model_post_init"}
"""What calls are made of."""
_GIVES = (("Steps", ""), ("Stream", "Iterator"))
"""What the source of a call says that it gives, and what its caller gets."""

_PLACES: Mapping[str, Sequence[str] | None] = {
    "service.client": _ALL,
    "models": _ALL,
    "models.compression": _ALL,
    "models.checkpoint": ("load", "save", "LoadedModel"),
    "models.fused": ("fuse", "FusedNetwork"),
    "models.model": ("ModelSpec", "after_step"),
}
"""Modules that programs import from, and their names; all that they say are public, or these."""


def page() -> Iterator[str]:
    """The lines of the page."""
    yield "# Python"
    yield ""
    yield written_by("the public names of the client and of the models, from their source")
    for module, names in _PLACES.items():
        scope = importlib.import_module(module)
        yield ""
        yield f"## {module}"
        for name in names or sorted(scope.__all__):
            yield from _entry(name, getattr(scope, name))


def _entry(name: str, value: Any) -> Iterator[str]:
    yield ""
    yield f"### {name}"
    yield ""
    if inspect.isclass(value):
        yield first_paragraph(value.__doc__)
        rows = list(_members(value))
        if name.startswith("Async"):
            yield ""
            yield f"It has the calls of `{name.removeprefix('Async')}`, to be awaited."
        elif rows:
            yield ""
            yield from table(("call", "does"), rows)
    elif callable(value):
        yield f"`{_signature(name, value)}`"
        yield ""
        yield first_paragraph(value.__doc__)
    else:
        yield f"A {type(value).__name__}."


def _members(value: type) -> Iterator[tuple[str, str]]:
    """Public methods and properties that our own classes define, the nearest first."""
    seen: set[str] = set()
    for one in value.__mro__:
        if one.__module__.split(".")[0] not in ("service", "models", "search", "storage"):
            continue
        for name, member in vars(one).items():
            if name.startswith("_") or name in seen | _PLUMBING:
                continue
            if isinstance(member, property):
                seen.add(name)
                yield f"`.{name}`", first_paragraph(member.__doc__)
            elif inspect.isfunction(member) or hasattr(member, "__wrapped__"):
                seen.add(name)
                # What a handle knows of itself is no argument of its calls.
                known = getattr(member, "_named_by", 0)
                text = _signature(name, member, known=known)
                yield f"`{text}`", first_paragraph(member.__doc__)


def _given(written: str) -> str:
    """What a caller gets of a call, whose source says what its steps give."""
    for steps, given in _GIVES:
        if match := re.fullmatch(rf"{steps}\[(.+)\]", written):
            written = f"{given}[{match[1]}]" if given else match[1]
    # A type variable is named after what it stands for.
    return re.sub(r"\b_(?=[A-Z][a-z])", "", written)


def _signature(name: str, function: Callable[..., Any], *, known: int = 0) -> str:
    """As the source has it, on one line, without the arguments that are known.

    It is the same for all versions of Python.
    """
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    (node,) = ast.parse(source).body
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return name
    if node.args.args and node.args.args[0].arg in ("self", "cls"):
        del node.args.args[: 1 + known]
    arguments = ast.unparse(node.args)
    answer = "" if node.returns is None else f" -> {_given(ast.unparse(node.returns))}"
    return f"{name}({arguments}){answer}"
