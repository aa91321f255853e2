"""Where the texts of language models come from: known corpora, and files of the user's own."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

from pydantic import Field

from models.spec import Spec
from search.errors import DataError
from search.formats import files, text
from search.tasks.download import fetch
from search.tasks.sources import DataSources, DownloadProgress, Mirror
from search.tasks.text.tokens import END_OF_LINE, Level, Unknown

CorpusName = Literal["ptb", "wikitext-2", "tinyshakespeare"]
Paths = Mapping[str, Path]
"""Files of the three splits, by name, or `{"whole": file}` for a text that is yet to be cut."""

_TASK = "language"
_WHOLE = "whole"
# The three files of a user's own, and how the splits are called here.
_PARTS = {"train": "train", "validation": "valid", "test": "test"}


class TextFacts(Spec):
    """What a text holds, once it is numbered."""

    vocabulary: int = Field(ge=2, description="symbols, the end of a line among them")
    tokens: dict[str, int] = Field(description="by split, with an end for each line")
    lines: dict[str, int] = Field(description="by split")
    sha256: dict[str, str] = Field(description="of the uncompressed files, by name")


@dataclass(frozen=True)
class Corpus:
    """A known text."""

    checksums: Mapping[str, str]
    """SHA-256 of the uncompressed files by name, in the order train, validation, test; of one file
    that is yet to be cut, its only one."""
    places: tuple[str, ...]
    """Where in the data folder the files are looked for, the place to put them first."""
    terms: str
    remote: PurePosixPath | None = None
    """Where the files are below the mirror's address; None: they are not ours to fetch."""
    padded: bool = False
    """Whether lines are written with blanks at their ends, which are no characters of the text."""
    sizes: Mapping[tuple[Level, Unknown], tuple[int, tuple[int, int, int]]] = field(
        default_factory=dict[tuple[Level, Unknown], tuple[int, tuple[int, int, int]]]
    )
    """Vocabulary and tokens of each split, for texts that are fetched after a study is planned."""
    lines: tuple[int, int, int] = (0, 0, 0)


PUBLIC_MIRROR = Mirror(
    "https://raw.githubusercontent.com/pytorch/examples/77f55b912142e11fcfdf5b530231fb9c52f181e8/"
)

CORPORA: Mapping[CorpusName, Corpus] = {
    "ptb": Corpus(
        checksums={
            "ptb.train.txt": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
            "ptb.valid.txt": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
            "ptb.test.txt": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
        },
        # The last one is how Mikolov's archive, simple-examples.tgz, unpacks.
        places=("ptb", ".", "simple-examples/data"),
        terms="the Linguistic Data Consortium's Treebank-3 (LDC99T42): licensed, never fetched",
        padded=True,
    ),
    "wikitext-2": Corpus(
        checksums={
            "train.txt": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
            "valid.txt": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
            "test.txt": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
        },
        places=("text/wikitext-2", "wikitext-2"),
        terms="CC BY-SA 3.0 (Wikipedia)",
        remote=PurePosixPath("word_language_model/data/wikitext-2"),
        padded=True,
        sizes={
            ("word", "spelled"): (33_278, (2_088_628, 217_646, 245_569)),
            ("character", "spelled"): (283, (10_719_952, 1_113_971, 1_247_769)),
            ("character", "spare"): (284, (10_719_952, 1_113_971, 1_247_769)),
            ("character", "symbol"): (284, (10_501_452, 1_067_099, 1_186_897)),
        },
        lines=(36_718, 3_760, 4_358),
    ),
    "tinyshakespeare": Corpus(
        checksums={"input.txt": "86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed"},
        places=("text/tinyshakespeare", "tinyshakespeare"),
        terms="public domain",
        remote=PurePosixPath("distributed/minGPT-ddp/mingpt/data"),
        sizes={
            ("word", "spelled"): (24_031, (220_758, 11_414, 10_479)),
            ("character", "spelled"): (65, (1_016_242, 51_726, 47_426)),
            ("character", "spare"): (66, (1_016_242, 51_726, 47_426)),
            ("character", "symbol"): (65, (1_016_242, 51_726, 47_426)),
        },
        lines=(36_000, 2_000, 2_000),
    ),
}
"""The texts that are known by name, which are exactly these bytes."""


def known_facts(name: CorpusName, level: Level, unknown: Unknown) -> TextFacts | None:
    """What a corpus holds that need not be there; None for one that is not fetched."""
    corpus = CORPORA[name]
    if corpus.remote is None:
        return None
    vocabulary, tokens = corpus.sizes[level, unknown]
    return TextFacts(
        vocabulary=vocabulary,
        tokens=dict(zip(_PARTS, tokens, strict=True)),
        lines=dict(zip(_PARTS, corpus.lines, strict=True)),
        sha256=dict(corpus.checksums),
    )


def local_files(name: CorpusName, folder: Path | None) -> Paths | None:
    """Find a corpus in the data folder; None where it is not there and can be fetched.

    Raises:
        DataError: It cannot be fetched and is not there, is there in part, or is another text.
    """
    corpus = CORPORA[name]
    if folder is not None and not folder.is_dir():
        raise DataError(f"the data folder {folder} does not exist")
    here = folder is not None and any(
        (folder / place / f"{file}{suffix}").is_file()
        for place in corpus.places
        for file in corpus.checksums
        for suffix in ("", ".gz")
    )
    if not here and corpus.remote is not None:
        return None
    found = {
        file: files.find(folder, *(f"{place}/{file}" for place in corpus.places), task=_TASK)
        for file in corpus.checksums
    }
    for file, path in found.items():
        digest = digest_of(path)
        if digest != corpus.checksums[file]:
            raise DataError(
                f"{path} is not {name}: its SHA-256, uncompressed, is {digest}, expected is "
                f"{corpus.checksums[file]}; another text is trained on as corpus 'file'"
            )
    return _by_split(list(found.values()))


def fetched_files(
    name: CorpusName, sources: DataSources, progress: DownloadProgress | None
) -> Paths:
    """Bring a corpus into the cache, unless it is there.

    Raises:
        DataError: A file could not be had, or is another text.
    """
    corpus = CORPORA[name]
    assert corpus.remote is not None, name
    mirror = sources.mirrors.get(_TASK, PUBLIC_MIRROR)
    checksums = {str(corpus.remote / file): digest for file, digest in corpus.checksums.items()}
    paths = fetch(checksums, sources.cache / "language-files", url=mirror.url, progress=progress)
    return _by_split(list(paths.values()))


def own_files(name: str, folder: Path | None) -> Paths:
    """Find a text of the user's own: one file, or `<stem>.{train,valid,test}.txt` in its place.

    Args:
        name: of the file, `<stem>.txt` for instance; free of separators.
        folder: the data folder.

    Raises:
        DataError: The file is not there, nor are the three; or not all of them.
    """
    parts = {split: f"{Path(name).stem}.{part}.txt" for split, part in _PARTS.items()}
    in_parts = folder is not None and any(
        (folder / f"{part}{suffix}").is_file() for part in parts.values() for suffix in ("", ".gz")
    )
    whole = folder is not None and any((folder / f"{name}{end}").is_file() for end in ("", ".gz"))
    if in_parts and not whole:
        return {split: files.find(folder, part, task=_TASK) for split, part in parts.items()}
    return {_WHOLE: files.find(folder, name, task=_TASK)}


def read(paths: Paths, *, padded: bool, level: Level) -> Mapping[str, str]:
    """Give the text of each split.

    Args:
        paths: where it is.
        padded: see `Corpus`.
        level: among words `<eos>` at the end of a line is that end, as in many published texts.

    Raises:
        DataError: A file is damaged or is not text, or says `<eos>` elsewhere; the message names it
            and the line.
    """
    texts = {split: text.read(path) for split, path in paths.items()}
    if padded:
        texts = {split: text.stripped(content) for split, content in texts.items()}
    if level == "word":
        texts = {split: _without_ends(content, paths[split]) for split, content in texts.items()}
    return text.cut(texts[_WHOLE], path=paths[_WHOLE]) if _WHOLE in texts else texts


def _without_ends(content: str, path: Path) -> str:
    """The same text without `<eos>` at the ends of its lines, which ends of lines say already."""
    if END_OF_LINE not in content:
        return content
    lines = text.lines(content)
    for number, line in enumerate(lines, start=1):
        words = line.split() if END_OF_LINE in line else []
        if END_OF_LINE in words[:-1]:
            raise DataError(
                f"{path}, line {number}: {END_OF_LINE} is word {words.index(END_OF_LINE) + 1} of "
                f"{len(words)}; allowed is one, as the last word of a line, which ends there"
            )
        if words[-1:] == [END_OF_LINE]:
            lines[number - 1] = " ".join(words[:-1])
    return "".join(f"{line}\n" for line in lines)


def digest_of(path: Path) -> str:
    """SHA-256 of a file's uncompressed bytes, in hexadecimal digits."""
    return looked_at(path)[0]


def looked_at(path: Path) -> tuple[str, bool]:
    """The digest of a file, see `digest_of`, and whether it says `<eos>` anywhere."""
    content = files.content(path)
    return hashlib.sha256(content).hexdigest(), END_OF_LINE.encode() in content


def _by_split(paths: list[Path]) -> Paths:
    return {_WHOLE: paths[0]} if len(paths) == 1 else dict(zip(_PARTS, paths, strict=True))
