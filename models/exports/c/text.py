"""Names and literals of C."""

import re

from models.errors import ExportError

LONGEST_NAME = 63
"""Letters that C99 tells names apart by."""
LONGEST_LITERAL = 4095
"""Bytes of a string that every compiler of C99 takes."""

_KEYWORDS = """
    auto break case char const continue default do double else enum extern float for goto if
    inline int long register restrict return short signed sizeof static struct switch typedef
    union unsigned void volatile while alignas alignof bool constexpr false nullptr
    static_assert thread_local true typeof typeof_unqual
"""
KEYWORDS = frozenset(_KEYWORDS.split())
"""Of C99, and of C23 beside."""

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def check_name(name: str) -> None:
    """Refuse what no C names can begin with.

    Raises:
        ExportError: names the value and the rule.
    """
    if not _IDENTIFIER.fullmatch(name) or name in KEYWORDS or len(name) > LONGEST_NAME:
        raise ExportError(
            f"name = {name!r} is no name for C files; allowed are a letter and then letters, "
            f"digits and _, at most {LONGEST_NAME} together, but no keyword of C"
        )


def number(value: float) -> str:
    """A number of single precision, exactly."""
    digits = f"{value:.9g}"
    return digits + ("f" if "." in digits or "e" in digits else ".0f")


def string(text: str) -> str:
    """A string literal of the text's UTF-8; what is not plain is written in octal.

    Raises:
        ExportError: it has a zero byte, or more bytes than a literal holds.
    """
    content = text.encode()
    if 0 in content or len(content) > LONGEST_LITERAL:
        raise ExportError(
            f"the name {text[:40]!r} of {len(content)} bytes does not fit a C string; allowed are "
            f"at most {LONGEST_LITERAL} bytes, none of them 0"
        )
    return '"' + "".join(map(_character, content)) + '"'


def _character(byte: int) -> str:
    # Two question marks in a row may begin a trigraph.
    plain = 32 <= byte < 127 and chr(byte) not in '"\\?'
    return chr(byte) if plain else f"\\{byte:03o}"
