"""What every parser promises of any bytes: a result, or a DataError that names the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from search.errors import DataError

FEW = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

_JUNK = (
    *(b"\n", b"\r", b"\x00", b"\xff", b",", b" ", b"\t", b":", b"-", b"?", b"'", b"{", b"}"),
    *(b"NaN", b"1e999", b"9" * 30, b"@data\n", b"<!DOCTYPE a>"),
    "\N{ARABIC-INDIC DIGIT ONE}".encode(),
)


def mutations(good: bytes) -> st.SearchStrategy[bytes]:
    """The file with a few pieces replaced, removed, doubled or put elsewhere."""
    place = st.integers(0, len(good))
    junk = st.sampled_from(_JUNK)
    edits = st.lists(st.tuples(place, st.integers(0, 8), junk | st.just(good[:20])), max_size=4)

    def edited(steps: list[tuple[int, int, bytes]]) -> bytes:
        content = good
        for start, length, piece in steps:
            content = content[:start] + piece + content[start + length :]
        return content

    return edits.map(edited)


def result_or_refusal(read: Callable[[Path], Any], path: Path, content: bytes) -> Any | None:
    """What a parser makes of some bytes, or None where it refuses them as it should."""
    path.write_bytes(content)
    try:
        return read(path)
    except DataError as error:
        message = str(error)
    assert str(path) in message
    return None
