"""Language models: the next word or character of a text, at every step."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field, model_validator

from models.interface import Classes, Interface, OneHot
from models.spec import Signature, Spec
from search.errors import DataError, TaskUnresolved
from search.tasks.array_cache import Arrays, cached_arrays
from search.tasks.classification import cross_entropy_of_steps
from search.tasks.raw_samples import RawSamples
from search.tasks.samples import Splits
from search.tasks.soft_targets import soft_classes
from search.tasks.sources import DataSources, DownloadProgress
from search.tasks.task import Metric
from search.tasks.text import texts
from search.tasks.text.language_meter import LanguageMeter
from search.tasks.text.raw_tokens import lines_of_tokens, windows_of_tokens
from search.tasks.text.texts import CORPORA, CorpusName, Paths, TextFacts
from search.tasks.text.token_samples import SENTENCE_EVALUATION_ROWS, Sentences, TokenStream
from search.tasks.text.tokens import ENCODERS, Level, Unknown

_SPLITS = ("train", "validation", "test")
_SYMBOLS = "symbols"
_ARRAYS = (*_SPLITS, _SYMBOLS)
# Part of the cache's names: it changes with what the same files are made into.
_ENCODING = "2"
# Added to it for words of texts that say `<eos>`, which earlier programs read as one more line end.
_ENDS = "ends"
_FEWEST_SYMBOLS = 2


@dataclass(frozen=True)
class _Measure:
    """How the models of a level are compared."""

    metric: str
    unit: str
    bits: str
    """What a token's bits are called."""
    uniform: Callable[[int], float]
    """The metric of the uniform guess among so many symbols."""
    embedding: int | None
    """Numbers of a token's embedding where nothing is said; None: tokens are one-hot."""


_MEASURES: Mapping[Level, _Measure] = {
    "word": _Measure("perplexity", "equally likely words", "bits_per_word", float, 128),
    "character": _Measure("bits_per_character", "bits", "bits_per_character", math.log2, None),
}


class Language(Spec):
    """A text whose next token, a word or a character, is predicted at every step.

    Tokens are numbered by their frequency in the training text; each line ends in a token of its
    own. Every token of a split is predicted exactly once, the first one after an end of line. The
    metric is the perplexity of words, or bits per character, with each token counting the same; its
    baseline is the uniform guess among all V symbols, V or log2 V.

    `ptb` (the Penn Treebank as Mikolov prepared it) is licensed and never fetched: its files must
    be in the data folder. `wikitext-2` (CC BY-SA 3.0) and `tinyshakespeare` (public domain) are
    downloaded if they are not there.
    """

    title: ClassVar[str] = "Language model"
    evaluation_rows: ClassVar[int] = SENTENCE_EVALUATION_ROWS
    paper: ClassVar[str] = (
        "Mikolov, Karafiat, Burget, Cernocky, Khudanpur: Recurrent Neural Network Based Language "
        "Model (Interspeech 2010); Merity, Xiong, Bradbury, Socher: Pointer Sentinel Mixture "
        "Models (arXiv:1609.07843) for WikiText-2"
    )

    kind: Literal["language"] = "language"
    corpus: CorpusName | Literal["file"] = Field(
        default="tinyshakespeare", description="a known text, or a file of your own"
    )
    file: str | None = Field(
        default=None,
        max_length=200,
        pattern=r"^[^./\\\x00-\x1f][^/\\\x00-\x1f]*$",
        description="corpus file: a UTF-8 text in the data folder, plain or gzipped. It is cut by "
        "lines into 90 % train, then 5 % validation and 5 % test; or, for `<stem>.txt`, there are "
        "`<stem>.train.txt`, `<stem>.valid.txt` and `<stem>.test.txt`",
    )
    level: Level = Field(
        default="character", description="whether tokens are words, split at blanks, or characters"
    )
    unknown: Unknown = Field(
        default="spelled",
        description="level character. spelled: `<unk>` in the text is five characters, and there "
        "is a symbol for what the training text does not have if a held-out text needs one (50 "
        "symbols for ptb); spare: that symbol is always there (51, as in Miceli Barone's low-rank "
        "GRUs); symbol: `<unk>` in the text is that one symbol (49, as in Graves's set-up)",
    )
    batching: Literal["stream", "sentences"] = Field(
        default="stream",
        description="stream: the text in as many rows as a batch has, read in windows with the "
        "state carried on; sentences: each line by itself, from the initial state",
    )
    window: int = Field(
        default=35,
        ge=1,
        le=100_000,
        description="batching stream: steps of a window, through which gradients flow; 35 in "
        "Zaremba et al., 300 in spectral RNNs",
    )
    longest: int | None = Field(
        default=500,
        ge=1,
        le=1_000_000,
        description="batching sentences: training lines of more tokens than this, the end not "
        "counted, are left out; held-out ones never are; null: none is",
    )
    embedding: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="width of a token's trained embedding; null: 128 for words, none for "
        "characters, which are then one-hot",
    )
    facts: TextFacts | None = Field(
        default=None, description="what follows from the data; filled in when a study is submitted"
    )

    @model_validator(mode="after")
    def _options_have_a_use(self) -> Self:
        if (self.file is None) == (self.corpus == "file"):
            raise ValueError(
                f"file is {self.file!r} for corpus {self.corpus!r}; it goes with corpus 'file', "
                "and only with it"
            )
        fields = type(self).model_fields
        for name, value, has_a_use, place in (
            ("unknown", self.unknown, self.level == "character", "level 'character'"),
            ("window", self.window, self.batching == "stream", "batching 'stream'"),
            ("longest", self.longest, self.batching == "sentences", "batching 'sentences'"),
        ):
            if not has_a_use and value != fields[name].default:
                raise ValueError(f"{name} {value!r} has no meaning here; it goes with {place}")
        return self

    @classmethod
    def example(cls) -> Self:
        """The characters of Tiny Shakespeare."""
        return cls(facts=texts.known_facts("tinyshakespeare", "character", "spelled"))

    @property
    def metric(self) -> Metric:
        """Perplexity or bits per character; the baseline is the uniform guess."""
        measure = _MEASURES[self.level]
        return Metric(
            name=measure.metric,
            direction="minimize",
            unit=measure.unit,
            baseline=measure.uniform(self._known.vocabulary),
        )

    def resolved(self, sources: DataSources) -> Self:
        """The same task with what its text holds; one that can be fetched need not be there.

        Raises:
            DataError: The text is missing, damaged, not what its name says, or too short.
        """
        paths = self._files(sources)
        facts = (
            self._read(paths, sources)[1]
            if paths is not None
            else texts.known_facts(self._corpus, self.level, self.unknown)
        )
        return self.model_copy(update={"facts": facts})

    def signature(self) -> Signature:
        """Tokens or one-hot symbols, and the next token's logits at every step.

        A sequence is a window of the stream, or as long as the average line of the training text.
        """
        facts = self._known
        mean = -(-facts.tokens["train"] // facts.lines["train"])
        numbers = self.embedding or _MEASURES[self.level].embedding
        return Signature(
            input_size=numbers or facts.vocabulary,
            sequence_length=self.window if self.batching == "stream" else mean,
            output_size=facts.vocabulary,
            output_steps="every",
            vocabulary=facts.vocabulary if numbers else None,
        )

    def data_bytes(self) -> int:
        """Tokens of all splits, as they are numbered."""
        return 4 * sum(self._known.tokens.values())

    def load(
        self, sources: DataSources, *, progress: DownloadProgress | None = None
    ) -> Splits[TokenStream] | Splits[Sentences]:
        """Read the text, or its numbers where it was read before; download it if need be.

        Raises:
            DataError: The text is missing, damaged, could not be fetched, or is not what it was
                when the task was resolved; or `longest` leaves nothing to train on.
        """
        paths, arrays = self._found(sources, progress)
        tokens = {split: torch.as_tensor(arrays[split]) for split in _SPLITS}
        one_hot = self._one_hot
        if self.batching == "stream":
            return Splits(*(TokenStream(tokens[split], self.window, one_hot) for split in _SPLITS))
        train = Sentences.of(tokens["train"], longest=self.longest, one_hot=one_hot)
        if len(train) == 0:
            raise DataError(
                f"{_listed(paths)}: no training line has at most longest = {self.longest} tokens"
            )
        held_out = (Sentences.of(tokens[split], one_hot=one_hot) for split in _SPLITS[1:])
        return Splits(train, *held_out)

    def interface(self, sources: DataSources) -> Interface:
        """Tokens by number, and the next token's logits at every step."""
        _, arrays = self._found(sources)
        return Interface(
            sample=("steps",),
            inputs=() if self._one_hot is None else (OneHot(symbols=self._one_hot),),
            answer=Classes(classes=_symbols_in(arrays)),
            metric=self.metric.name,
        )

    def raw_samples(self, sources: DataSources) -> RawSamples:
        """Windows of the stream, or whole lines; each is read from the initial state."""
        _, arrays = self._found(sources)
        tokens = torch.as_tensor(arrays["validation"])
        if self.batching == "stream":
            return windows_of_tokens(tokens, self.window)
        return lines_of_tokens(Sentences.of(tokens))

    loss = staticmethod(cross_entropy_of_steps)
    soft_loss = staticmethod(soft_classes)

    @property
    def asks_for_classes(self) -> bool:
        """Whether targets are classes: they are."""
        return True

    def meter(self) -> LanguageMeter:
        """Perplexity, bits per token, and perplexity by sentence where sentences are read."""
        return LanguageMeter(
            bits=_MEASURES[self.level].bits, by_sentence=self.batching == "sentences"
        )

    @property
    def _known(self) -> TextFacts:
        if self.facts is None:
            raise TaskUnresolved(f"nobody looked at the text of corpus {self.corpus!r} yet")
        return self.facts

    @property
    def _one_hot(self) -> int | None:
        """The vocabulary, where a model has no embedding of its own."""
        return self._known.vocabulary if self.signature().vocabulary is None else None

    def _found(
        self, sources: DataSources, progress: DownloadProgress | None = None
    ) -> tuple[Paths, Arrays]:
        """The text as it was when the task was resolved."""
        paths = self._files(sources)
        if paths is None:
            paths = texts.fetched_files(self._corpus, sources, progress)
        arrays, facts = self._read(paths, sources)
        if facts != self._known:
            raise DataError(
                f"{_listed(paths)}: the text has changed since the study was submitted; it had "
                f"{self._known.model_dump()}, and has {facts.model_dump()}"
            )
        return paths, arrays

    @property
    def _corpus(self) -> CorpusName:
        assert self.corpus != "file", "a text of the user's own is never fetched"
        return self.corpus

    def _files(self, sources: DataSources) -> Paths | None:
        """The text's files; None where they are yet to be fetched."""
        if self.file is not None:
            return texts.own_files(self.file, sources.folder)
        return texts.local_files(self._corpus, sources.folder)

    def _read(self, paths: Paths, sources: DataSources) -> tuple[Arrays, TextFacts]:
        padded = self.corpus != "file" and CORPORA[self.corpus].padded
        found = {path.name.removesuffix(".gz"): texts.looked_at(path) for path in paths.values()}
        sha256 = {name: digest for name, (digest, _) in found.items()}
        ends = self.level == "word" and any(says for _, says in found.values())
        encoding = (_ENCODING, _ENDS) if ends else (_ENCODING,)
        key = (*encoding, self.level, self.unknown, str(padded), *paths, *sha256.values())
        digest = hashlib.sha256("/".join(key).encode()).hexdigest()[:32]

        def make() -> Arrays:
            read = texts.read(paths, padded=padded, level=self.level)
            encoded = ENCODERS[self.level](read, self.unknown)
            symbols = json.dumps(encoded.symbols).encode()
            return {**encoded.tokens, _SYMBOLS: np.frombuffer(symbols, dtype=np.uint8)}

        arrays = cached_arrays(sources.cache / f"language-{digest}", _ARRAYS, make)
        vocabulary = len(_symbols_in(arrays))
        if vocabulary < _FEWEST_SYMBOLS:
            raise DataError(f"{_listed(paths)}: the text has nothing but ends of lines")
        tokens = {split: arrays[split][1:] for split in _SPLITS}
        facts = TextFacts(
            vocabulary=vocabulary,
            tokens={split: len(of_split) for split, of_split in tokens.items()},
            lines={
                split: int((of_split == arrays[split][0]).sum())
                for split, of_split in tokens.items()
            },
            sha256=sha256,
        )
        return arrays, facts


def _symbols_in(arrays: Arrays) -> tuple[str, ...]:
    """What tokens stand for."""
    return tuple(json.loads(arrays[_SYMBOLS].tobytes()))


def _listed(paths: Paths) -> str:
    return ", ".join(str(path) for path in paths.values())
