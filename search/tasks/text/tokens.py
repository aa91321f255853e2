r"""From text to numbers: the vocabulary of a training text, and all splits written in it.

The rule is frozen, because the numbers of different versions are compared: symbols are numbered
from 0 by falling frequency in the training text, equally frequent ones by their code points. The
end of each line is a symbol like others (`<eos>` among words, `\n` among characters; `texts.read`
leaves no `<eos>` in what is split into words). What the training text does not have becomes
`<unk>`; where it does not have `<unk>` itself, that symbol comes last, and only if a held-out text
needs it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Level = Literal["word", "character"]
Unknown = Literal["spelled", "spare", "symbol"]

END_OF_LINE = "<eos>"
UNKNOWN = "<unk>"

_CODE_POINTS = 0x110000
# No text has a NUL, see `formats.text`: it stands for `<unk>` where that is one symbol.
_NUL = "\0"


@dataclass(frozen=True)
class EncodedTexts:
    """Texts in the numbers of one vocabulary."""

    tokens: Mapping[str, NDArray[np.int32]]
    """By split, all lines in order, each with its end; before the first one stands another end, as
    what a model reads when it is asked for the first token."""
    symbols: tuple[str, ...]
    """What the numbers stand for."""

    @property
    def vocabulary(self) -> int:
        """How many symbols there are."""
        return len(self.symbols)


def encode_words(texts: Mapping[str, str], unknown: Unknown) -> EncodedTexts:  # noqa: ARG001
    """Number the words, which are what whitespace separates; `unknown` concerns characters only.

    Args:
        texts: by split, as `formats.text.read` gives them; the vocabulary is that of `train`.
        unknown: of no meaning here.
    """
    words = {name: text.replace("\n", f" {END_OF_LINE} ").split() for name, text in texts.items()}
    counts = Counter(words["train"])
    symbols = sorted(counts, key=lambda word: (-counts[word], word))
    numbers = {word: number for number, word in enumerate(symbols)}
    other = numbers.get(UNKNOWN, len(symbols))
    end = numbers[END_OF_LINE]
    tokens = {
        name: np.fromiter(
            (numbers.get(word, other) for word in (END_OF_LINE, *split)), np.int32, len(split) + 1
        )
        for name, split in words.items()
    }
    assert all(split[0] == end for split in tokens.values())
    return EncodedTexts(tokens, _with_unknown(symbols, tokens))


def encode_characters(texts: Mapping[str, str], unknown: Unknown) -> EncodedTexts:
    """Number the characters, blanks and ends of lines among them.

    Args:
        texts: by split, as `formats.text.read` gives them; the vocabulary is that of `train`.
        unknown: spelled: `<unk>` in the text is five characters; spare: likewise, and the symbol
            for what the training text does not have is there even if nothing needs it; symbol:
            `<unk>` in the text is that symbol.
    """
    if unknown == "symbol":
        texts = {name: text.replace(UNKNOWN, _NUL) for name, text in texts.items()}
    codes = {name: _codes(text) for name, text in texts.items()}
    counts = np.bincount(codes["train"], minlength=_CODE_POINTS)
    present = np.flatnonzero(counts)
    symbols = present[np.lexsort((present, -counts[present]))]
    table = np.full(_CODE_POINTS, len(symbols), np.int32)
    table[symbols] = np.arange(len(symbols), dtype=np.int32)
    if counts[ord(_NUL)]:
        table[table == len(symbols)] = table[ord(_NUL)]
    end = table[[ord("\n")]]
    tokens = {name: np.concatenate((end, table[split])) for name, split in codes.items()}
    named = [UNKNOWN if code == ord(_NUL) else chr(code) for code in symbols.tolist()]
    return EncodedTexts(tokens, _with_unknown(named, tokens, always=unknown == "spare"))


ENCODERS: Mapping[Level, Callable[[Mapping[str, str], Unknown], EncodedTexts]] = {
    "word": encode_words,
    "character": encode_characters,
}


def _codes(text: str) -> NDArray[Any]:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def _with_unknown(
    symbols: Sequence[str], tokens: Mapping[str, NDArray[np.int32]], *, always: bool = False
) -> tuple[str, ...]:
    """The known symbols, and `<unk>` where it had to be added behind them."""
    needed = any(int(split.max()) == len(symbols) for split in tokens.values())
    return (*symbols, UNKNOWN) if needed or always else tuple(symbols)
