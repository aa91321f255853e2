"""`python -m tests.references`: writes the reference pages; with `--check` it only compares."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from tests import spec_reference
from tests.references import cli, errors, http, python, settings

FOLDER = Path(__file__).parents[2] / "deploy/docs/reference"


def _text(lines: Callable[[], Iterator[str]]) -> Callable[[], str]:
    return lambda: "\n".join(lines()) + "\n"


PAGES: Mapping[str, Callable[[], str]] = {
    "cli.md": _text(cli.page),
    "errors.md": _text(errors.page),
    "http.md": _text(http.page),
    "python.md": _text(python.page),
    "settings.md": _text(settings.page),
    "spec.md": spec_reference.reference,
}
"""The text of each page."""


def stale() -> list[str]:
    """Pages that are not what the code says now."""
    return [
        name
        for name, text in PAGES.items()
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text() != text()
    ]


def main(arguments: Sequence[str]) -> int:
    """Write all pages, or exit with 1 where one is stale."""
    parser = argparse.ArgumentParser(prog="python -m tests.references", description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args(arguments).check:
        found = stale()
        for name in found:
            sys.stderr.write(f"{FOLDER / name} is stale: run python -m tests.references\n")
        return bool(found)
    for name, text in PAGES.items():
        (FOLDER / name).write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
