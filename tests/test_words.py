"""The style of what users read: standard words, and sentences that can be read at once."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.command_help import all_help
from tests.references.__main__ import PAGES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "deploy/docs"
MOST_WORDS = 35
MOST_README_LINES = 150

BANNED: Mapping[str, str] = {
    r"as usual": "default",
    r"dense twins?": "dense baseline",
    r"errands?": "command",
    r"(?:measuring )?lanes?": "measurement lock",
    r"foreign (?:trials?|ones)": "warm-start trials",
    r"trainable numbers": "parameters",
    r"what mattered": "hyperparameter importance",
    r"good end": "failed or was cancelled",
    r"counts for nothing": "is ignored",
    r"log in or out": "log in",
    r"may be given away": "freely licensed",
    r"asked again after": "retried after",
    r"away with it": "delete it",
    r"late words": "reports after the lease has expired",
    r"taken for heard": "counts as delivered",
    r"take what you want": "download the results",
    r"only training finds": "no conversion is implemented",
}
"""Private words, and what they are called."""

RECORDS = ("benchmarks",)
"""Folders of records: what a benchmark found on a day is not reworded."""


def pages() -> list[Path]:
    """All pages of the documentation."""
    return sorted(DOCS.rglob("*.md"))


def own_pages() -> list[Path]:
    """Those that are written by hand and are no records."""
    return [
        page
        for page in pages()
        if page.name not in PAGES and page.relative_to(DOCS).parts[0] not in RECORDS
    ]


def texts() -> Mapping[str, str]:
    paths = [
        ROOT / "README.md",
        *pages(),
        *sorted((ROOT / "service/rendering/templates").glob("*.html")),
    ]
    # What a template computes by is no word that anybody reads.
    found = {
        str(path.relative_to(ROOT)): re.sub(
            r"{[{%#].*?[}%#]}", "", path.read_text(), flags=re.DOTALL
        )
        for path in paths
    }
    return found | {"--help": all_help()}


def sentences(text: str) -> Iterator[str]:
    """The sentences of a page's prose: without programs, tables, headings and comments."""
    text = re.sub(r"^```.*?^```", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^(?:\||#|    |!\[|<).*$", "\n", text, flags=re.MULTILINE)
    # An item of a list begins a paragraph; code and links are a word each.
    text = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]*`", "CODE", text)
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    for paragraph in re.split(r"\n\s*\n", text):
        flowing = re.sub(r"\s+", " ", paragraph).strip()
        yield from filter(None, re.split(r"(?<=[.:;!?])\s+(?=[^a-z])|(?<=[:;])\s", flowing))


def words(sentence: str) -> int:
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def test_texts_have_no_private_words() -> None:
    found = [
        f"{name}: {match[0]!r} in {line.strip()[:80]!r} ({plain})"
        for name, text in texts().items()
        for line in text.splitlines()
        for private, plain in BANNED.items()
        if (match := re.search(rf"\b(?:{private})\b", line, re.IGNORECASE))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", *own_pages()], ids=lambda page: str(page.relative_to(ROOT))
)
def test_sentences_are_short(page: Path) -> None:
    long = [
        f"{words(sentence)} words: {sentence}"
        for sentence in sentences(page.read_text())
        if words(sentence) > MOST_WORDS
    ]
    assert not long, "\n".join(long)


def test_long_sentences_are_found() -> None:
    short, long = "One two three.", "Word " + " ".join(["word"] * MOST_WORDS) + "."
    found = list(sentences(f"# A title\n\n{short} {long}\n\n- {long}\n\n```sh\n{long}\n```\n"))
    assert [words(sentence) for sentence in found] == [3, MOST_WORDS + 1, MOST_WORDS + 1]


def test_the_readme_is_short_and_shows_something() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= MOST_README_LINES
    (pictures,) = re.findall(r"<picture>(.+?)</picture>", text, re.DOTALL)
    for file in re.findall(r'(?:srcset|src)="([^"]+)"', pictures):
        assert (ROOT / file).is_file(), file


def test_the_glossary_has_one_sentence_for_each_word() -> None:
    rows = re.findall(r"^\| \*\*([^*]+)\*\* \| (.+?) \|$", (DOCS / "glossary.md").read_text(), re.M)
    assert len(rows) >= 25
    terms = [term for term, _ in rows]
    assert terms == sorted(terms, key=str.lower)
    for term, text in rows:
        assert len(re.findall(r"[.!?](?: |$)", text)) == 1, term
        assert words(text) <= MOST_WORDS, term
