"""A C source file under construction."""

import re
from pathlib import Path
from textwrap import indent

from models.exports.c.tables import Tables

_FOLDER = Path(__file__).with_name("functions")
_INCLUDE = re.compile(r'#include "(\w+)\.c"\n\n?')

PREAMBLE = """\
/* Compilers may not merge a product and a sum into one rounding: equal bits everywhere. GCC does
   as much by -std=c99, or by -ffp-contract=off. */
#if defined(__clang__) || !defined(__GNUC__)
#pragma STDC FP_CONTRACT OFF
#endif
"""


class Source:
    """Tables, the functions of the library that are called, and functions of the model's own."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._used: dict[str, str] = {}
        self._own: list[str] = []

    def call(self, function: str, *arguments: object) -> str:
        """A call of one of `functions/`, which the file then has."""
        self.use(function)
        return f"{function}({', '.join(map(str, arguments))});"

    def use(self, function: str) -> str:
        """Have one of `functions/`, after those it calls itself; its name is returned."""
        if function not in self._used:
            text = (_FOLDER / f"{function}.c").read_text()
            for needed in _INCLUDE.findall(text):
                self.use(needed)
            self._used[function] = _INCLUDE.sub("", text)
        return function

    def define(self, signature: str, body: str, about: str = "", *, static: bool = True) -> None:
        """Add a function."""
        comment = f"/* {about} */\n" if about else ""
        words = "static " if static else ""
        self._own.append(f"{comment}{words}{signature}\n{{\n{indent(body.strip(), '    ')}\n}}\n")

    def declare(self, text: str) -> None:
        """Add what is no function, before the functions of the model's own that follow."""
        self._own.append(text)

    def written(self, header: str) -> str:
        """The whole file."""
        parts = [f'#include "{header}"\n', PREAMBLE, self.tables.written() + "\n"]
        return "\n".join([*parts, *self._used.values(), *self._own])
