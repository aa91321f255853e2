import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from search.errors import DataError
from search.formats import text
from search.tasks.text.tokens import ENCODERS

FEW = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "some.txt"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzipped"])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"one\ntwo\n", "one\ntwo\n"),
        (b"one\ntwo", "one\ntwo\n"),
        (b"\xef\xbb\xbfone\r\n\r\ntwo\r\n", "one\n\ntwo\n"),
        (b"a\rb\x0b\x0cc\xc2\x85d\xe2\x80\xa8e\n", "a\rb\x0b\x0cc\x85d\u2028e\n"),
        (b"\n", "\n"),
        ("ünï—\U0001f600".encode(), "ünï—\U0001f600\n"),
    ],
    ids=["plain", "no last end", "mark and CRLF", "other breaks", "one blank line", "wide"],
)
def test_lines_end_in_one_way(tmp_path: Path, pack, content: bytes, expected: str) -> None:
    assert text.read(written(tmp_path, pack(content))) == expected


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf", "empty"),
        (b"fine\nfine\nnot \xff fine\n", "line 3: byte 14 is 0xff"),
        (b"fine\n\xe2\x82", "line 2: byte 5 is 0xe2"),
        (b"\xef\xbb\xbffine\nnot \xff fine\n", "line 2: byte 12 is 0xff"),
        ("utf-16".encode("utf-16-le") + b"\xd8", "byte 12"),
        (b"fine\nbi\0nary\n", "line 2: a NUL"),
        (gzip.compress(b"fine\n" * 100)[:-9], "gzip"),
    ],
    ids=[
        "empty",
        "mark only",
        "not UTF-8",
        "cut off",
        "after a mark",
        "UTF-16",
        "NUL",
        "damaged gzip",
    ],
)
def test_what_is_no_text_is_refused_with_the_file_and_the_place(
    tmp_path: Path, content: bytes, found: str
) -> None:
    path = written(tmp_path, content)
    with pytest.raises(DataError) as refused:
        text.read(path)
    assert str(path) in str(refused.value)
    assert found in str(refused.value)


@FEW
@given(st.one_of(st.binary(max_size=200), st.text(max_size=200).map(str.encode)))
def test_any_bytes_are_lines_that_can_be_numbered_or_refused_by_name(
    tmp_path: Path, content: bytes
) -> None:
    path = written(tmp_path, content)
    refused = ""
    try:
        read = text.read(path)
    except DataError as error:
        read, refused = "a line\n", str(error)
    assert not refused or str(path) in refused
    assert read.endswith("\n")
    assert "\0" not in read
    splits = {"train": read, "validation": read, "test": "something else\n"}
    for encode in ENCODERS.values():
        encoded = encode(splits, "spelled")
        for split, content_read in splits.items():
            tokens = encoded.tokens[split]
            assert tokens.min() >= 0
            assert tokens.max() < encoded.vocabulary
            # A text that says `<eos>` itself has more ends of lines.
            assert (tokens[1:] == tokens[0]).sum() >= content_read.count("\n")


def test_one_giant_line_is_one_line(tmp_path: Path) -> None:
    path = written(tmp_path, b"word " * 200_000)
    assert text.lines(text.read(path)) == ["word " * 200_000]
    with pytest.raises(DataError, match=f"{path} has 1 line; .* at least 3"):
        text.cut(text.read(path), path=path)


@FEW
@given(st.lists(st.sampled_from(["", "a", " b c ", "d\re"]), min_size=3, max_size=90))
def test_cutting_keeps_every_line_in_order_and_a_twentieth_for_each_held_out_split(
    lines: list[str],
) -> None:
    whole = "".join(f"{line}\n" for line in lines)
    parts = text.cut(whole, path=Path("whole.txt"))
    assert list(parts) == ["train", "validation", "test"]
    assert "".join(parts.values()) == whole
    sizes = [part.count("\n") for part in parts.values()]
    assert sizes[1:] == [max(1, len(lines) // 20)] * 2
    assert sizes[0] >= 1


def test_blanks_at_the_ends_of_lines_can_be_taken_off() -> None:
    assert text.stripped(" a b \n\n  \tc\n") == "a b\n\n\tc\n"
