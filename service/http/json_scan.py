"""What no JSON body may hold, found by looking at its bytes while they arrive.

A parser makes objects of whatever it is given, many times as large as the text, and the event loop
waits for it. So a body is looked at first, without making anything of it: a few operations on whole
pieces of bytes, no loop over single ones.
"""

import re
from collections.abc import Callable

import numpy as np

DEEPEST = 100
"""How deep arrays and objects may be nested."""

MOST_DIGITS = 100
"""How many digits may stand in a row."""

MOST_VALUES = 10_000
"""How many values a document may have, keys included, unless its route says otherwise."""

_BRACKETS = b"[]{}"
_NO_BRACKETS = bytes(set(range(256)) - set(_BRACKETS))
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""Bracket -> one level more or less, as a signed byte."""

_DIGIT = bytes(ord("0") if sign in b"0123456789" else ord(" ") for sign in range(256))
_TOO_MANY_DIGITS = b"0" * (MOST_DIGITS + 1)
_HUGE_EXPONENT = re.compile(rb"[eE]\+?0*(?:[1-9][0-9]{3,}|[4-9][0-9]{2}|3[1-9][0-9]|309)(?![0-9])")
"""Powers of ten above what a double holds."""

_LONE_SURROGATE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}"
)
_NUL_ESCAPE = rb"\u0000"


class NotPlainJson(Exception):
    """A body that is not parsed; says what is wrong with it and what is allowed."""


class TooDeep(NotPlainJson):
    """Arrays and objects are nested too deep, or there are too many values."""


class NotText(NotPlainJson):
    """The bytes are no text in UTF-8."""


class JsonScan:
    """Looks at one body: `feed` with every piece as it arrives, then `end`.

    Whatever passes, and is JSON, is a document of at most `DEEPEST` levels and `MOST_VALUES`
    values, whose texts are Unicode without NUL. What is no JSON at all is found by the parser.
    """

    def __init__(self, *, most_values: int = MOST_VALUES) -> None:
        self._most_values = most_values
        self._body = bytearray()
        self._outside = bytearray()
        self._in_string = False
        self._escapes = False
        self._depth = 0
        self._values = 0

    def feed(self, piece: bytes) -> None:
        """Look at the next piece.

        Raises:
            TooDeep: nested too deep by now, or too many values.
        """
        self._body += piece
        outside = self._without_strings(piece)
        self._outside += outside
        self._values += outside.count(b",") + outside.count(b":")
        if self._values >= self._most_values:
            raise TooDeep(f"the body has too many values; at most {self._most_values} are taken")
        brackets = outside.translate(None, _NO_BRACKETS)
        if not brackets:
            return
        steps = np.frombuffer(brackets.translate(_STEPS), dtype=np.int8)
        depths = self._depth + np.cumsum(steps, dtype=np.int32)
        if depths.max() > DEEPEST:
            raise TooDeep(
                f"the body is nested too deep; at most {DEEPEST} levels of arrays and objects "
                "are taken"
            )
        self._depth = int(depths[-1])

    def end(self) -> bytes:
        """The whole body, once it has arrived.

        Raises:
            NotText: the bytes are no UTF-8.
            NotPlainJson: a number or a text in it is none that can be stored.
        """
        body, outside = bytes(self._body), bytes(self._outside)
        try:
            body.decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotText(f"the body is not JSON in UTF-8: {error}") from error
        if b"\x00" in body:
            raise NotText(f"the body is not JSON in UTF-8: a NUL at byte {body.index(0)}")
        for refuse in _CHECKS:
            refuse(body, outside)
        return body

    def _without_strings(self, piece: bytes) -> bytes:
        """What of a piece stands outside of strings."""
        if self._escapes:
            piece, self._escapes = b"\\" + piece, False
        # From the left, pair by pair: what is left of a run of backslashes escapes what follows.
        plain = piece.replace(rb"\\", b"")
        if plain.endswith(b"\\"):
            plain, self._escapes = plain[:-1], True
        parts = plain.replace(rb"\"", b"").split(b'"')
        outside = b"".join(parts[1::2] if self._in_string else parts[0::2])
        self._in_string ^= len(parts) % 2 == 0
        return outside


def _refuse_huge_numbers(_body: bytes, outside: bytes) -> None:
    if _TOO_MANY_DIGITS in outside.translate(_DIGIT):
        raise NotPlainJson(f"the body has a number of more than {MOST_DIGITS} digits")
    found = _HUGE_EXPONENT.search(outside)
    if found is not None:
        raise NotPlainJson(
            f"the body has a number with the exponent {found.group()[:40].decode()}, which is none "
            "of 64 bits; allowed are numbers up to 1.7e308"
        )


def _refuse_broken_texts(body: bytes, _outside: bytes) -> None:
    if rb"\u" not in body:
        return
    # Of equal length, so that places stay where they are.
    plain = body.replace(rb"\\", b"//")
    place = plain.find(_NUL_ESCAPE)
    if place >= 0:
        raise NotPlainJson(rf"the body has a NUL character, \u0000, at byte {place}; text has none")
    found = _LONE_SURROGATE.search(plain)
    if found is not None:
        raise NotPlainJson(
            f"the body has half of a surrogate pair, {found.group().decode()}, at byte "
            f"{found.start()}, which is no character; allowed are both halves, or the character "
            "itself in UTF-8"
        )


_CHECKS: tuple[Callable[[bytes, bytes], None], ...] = (_refuse_huge_numbers, _refuse_broken_texts)
