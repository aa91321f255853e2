"""The error tree: drawn as it is, with one root."""

import inspect
import re

from storage import errors


def _drawn() -> dict[str, str]:
    """Class -> parent, as the module's docstring draws them."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"([│├└─ ]*)([A-Z]\w+)", line)
        if found is None or line.startswith("Errors"):
            continue
        depth = len(found[1]) // 4
        path = [*path[:depth], found[2]]
        if depth:
            parents[found[2]] = path[depth - 1]
    return parents


def test_the_tree_in_the_docstring_is_the_tree_of_the_classes() -> None:
    classes = {
        name: kind
        for name, kind in inspect.getmembers(errors, inspect.isclass)
        if kind.__module__ == errors.__name__ and kind is not errors.StorageError
    }
    assert _drawn() == {name: kind.__bases__[0].__name__ for name, kind in classes.items()}
    assert all(issubclass(kind, errors.StorageError) for kind in classes.values())
