"""`python.md`: the public names of the client and of the models, from their source."""

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from service.client.transport.steps import Method
from tests.references.markdown import first_paragraph, table, written_by

_ALL = None

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
        if rows:
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
            if name.startswith("_") or name in seen:
                continue
            if isinstance(member, property):
                seen.add(name)
                yield f"`.{name}`", first_paragraph(member.__doc__)
            elif inspect.isfunction(member) or isinstance(member, Method):
                seen.add(name)
                yield f"`{_signature(name, member)}`", first_paragraph(member.__doc__)


def _signature(name: str, function: Callable[..., Any]) -> str:
    """As the source has it, on one line: the same for all versions of Python."""
    source = textwrap.dedent(inspect.getsource(inspect.unwrap(function)))
    (node,) = ast.parse(source).body
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return name
    if isinstance(function, Method):
        # What names a study or a trial is not given to a call of its handle.
        every = inspect.signature(inspect.unwrap(function)).parameters
        given = inspect.signature(function).parameters
        node.args.args = [node.args.args[0], *node.args.args[1 + len(every) - len(given) :]]
        node.args.args[0].annotation = None
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
    answer = "" if node.returns is None else f" -> {_answer(ast.unparse(node.returns))}"
    return f"{name}({arguments}){answer}"


def _answer(returned: str) -> str:
    """What a caller gets of a call that is described by its steps."""
    for described, answered in (("Steps[", ""), ("Stream[", "Iterator[")):
        if returned.startswith(described):
            given = returned.removeprefix(described).removesuffix("" if answered else "]")
            return answered + given.lstrip("_")
    return returned.lstrip("_")
