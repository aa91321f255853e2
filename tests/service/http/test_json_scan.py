"""The scan lets plain JSON through, and of what it lets through a parser makes nothing else."""

import json
import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from service.http.json_scan import (
    DEEPEST,
    MOST_VALUES,
    JsonScan,
    NotPlainJson,
    NotText,
    TooDeep,
)

_SIGNS = st.sampled_from([*'[]{}",:\\u0dD8cC9eE+-. \n/é☃', r"\ud83d", r"\udca9", r"\u0000"])
_NUMBERS = st.sampled_from(["1e308", "1e309", "-2E+0400", "1e-999", "9" * 100, "9" * 101, "0.5"])
_TEXTS = st.text(max_size=20) | st.sampled_from(["\\", '"', '\\"', "[[[", "1e999", "\ud800\\"])
_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(_TEXTS, inner, max_size=5),
    max_leaves=20,
)


def scanned(body: bytes, cuts: random.Random | None = None) -> bytes:
    """The body as the scan gives it back, fed in pieces that begin and end anywhere."""
    scan, place = JsonScan(), 0
    while place < len(body):
        end = place + (len(body) if cuts is None else cuts.randint(0, 7))
        scan.feed(body[place:end])
        place = end
    return scan.end()


def refusal(body: bytes, cuts: random.Random | None = None) -> type[NotPlainJson] | None:
    try:
        assert scanned(body, cuts) == body
    except NotPlainJson as error:
        return type(error)
    return None


def levels(value: Any) -> int:
    if isinstance(value, dict | list):
        inner = value.values() if isinstance(value, dict) else value
        return 1 + max(map(levels, inner), default=0)
    return 0


def texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [*value, *(text for one in value.values() for text in texts(one))]
    if isinstance(value, list):
        return [text for one in value for text in texts(one)]
    return [value] if isinstance(value, str) else []


def is_plain(value: Any) -> bool:
    def whole(text: str) -> bool:
        return "\x00" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)

    return levels(value) <= DEEPEST and all(map(whole, texts(value)))


@settings(max_examples=400, deadline=None)
@example(["\\", "E310"], False, 65)
@given(_VALUES, st.booleans(), st.integers(0, 99))
def test_json_that_is_plain_passes_and_no_other(value: Any, ascii_only: bool, seed: int) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    assert (refusal(body, random.Random(seed)) is None) == is_plain(value)


@settings(max_examples=1000, deadline=None)
@given(st.lists(_SIGNS | _NUMBERS, max_size=40).map("".join), st.integers(0, 99))
@example(r'"\\ud800"', 0)
@example(r'"\\\ud800"', 0)
@example(r'"\udca9\ud83d"', 0)
@example(r'"\ud83d\ud83d\udca9"', 0)
def test_what_passes_makes_a_plain_document_or_none(text: str, seed: int) -> None:
    body = text.encode()
    found = refusal(body, random.Random(seed))
    assert refusal(body) == found, "how a body is cut in pieces makes no difference"
    try:
        value = json.loads(body)
    except ValueError:
        return
    if found is None:
        assert is_plain(value)


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        (b"[" * DEEPEST + b"]" * DEEPEST, None),
        (b"[" * (DEEPEST + 1), TooDeep),
        (b'{"a":' * (DEEPEST + 1), TooDeep),
        (b'"' + b"[" * 5000 + b'"', None),
        (b"[],[]," * 100, None),
        (b"[" + b"0," * (MOST_VALUES - 2) + b"0]", None),
        (b"[" + b"0," * MOST_VALUES + b"0]", TooDeep),
        (b"[" + b'"a,:",' * 1000 + b"0]", None),
        (rb'"\ud800"', NotPlainJson),
        (rb'"\uDFFF"', NotPlainJson),
        (rb'"\\ud800"', None),
        (rb'"\ud83d\udca9"', None),
        (rb'{"\udc00": 1}', NotPlainJson),
        (rb'"\u0000"', NotPlainJson),
        (rb'"\\u0000"', None),
        (b'"\xed\xa0\x80"', NotText),
        (b'"\xc0\x80"', NotText),
        (b'"\xff"', NotText),
        (b'"\x00"', NotText),
        ('"é"'.encode("utf-16"), NotText),
        (b"1" + b"0" * 400, NotPlainJson),
        (b"9" * 5000, NotPlainJson),
        (b'"' + b"9" * 5000 + b'"', None),
        (b"1e400", NotPlainJson),
        (b"-1E+000400", NotPlainJson),
        (b"1e308", None),
        (b"1e-400", None),
        (b'"1e400"', None),
    ],
)
def test_each_thing_that_is_refused(body: bytes, refused: type[NotPlainJson] | None) -> None:
    assert refusal(body) == refused
    assert refusal(body, random.Random(1)) == refused


def test_nesting_is_refused_while_it_arrives() -> None:
    scan = JsonScan()
    for _ in range(DEEPEST // 10):
        scan.feed(b"[" * 10)
    with pytest.raises(TooDeep, match="at most 100 levels"):
        scan.feed(b"[")
