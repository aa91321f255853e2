import gzip
import hashlib
import math
import random
from collections import Counter
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from models.architectures import Gru
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import Dense
from search.errors import DataError, TaskUnresolved
from search.tasks.array_cache import cached_arrays
from search.tasks.samples import IGNORED, Samples
from search.tasks.sources import DataSources, Mirror
from search.tasks.text import tokens as tokens_module
from search.tasks.text.language import Language
from search.tasks.text.language_meter import LanguageMeter
from search.tasks.text.texts import CORPORA, known_facts
from search.training.jobs import TrainJob
from search.training.run import train
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.real_data import real_data
from tests.search.training_cases import RecordingHooks

VERSE = ["the cat sat", "the dog sat on the mat", "", "a cat", "on the mat", "the end"] * 10


@pytest.fixture
def sources(tmp_path: Path) -> DataSources:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "verse.txt", VERSE)
    return DataSources(cache=tmp_path / "cache", folder=folder)


def write(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def a_task(sources: DataSources, **options: Any) -> Language:
    return Language(**{"corpus": "file", "file": "verse.txt", **options}).resolved(sources)


def every_target(samples: Samples) -> list[int]:
    batches = [samples.take(named) for named in samples.batches(4, None)]
    return [int(y) for batch in batches for y in batch.y.flatten() if y != IGNORED]


@pytest.mark.parametrize("level", ["word", "character"])
def test_tokens_are_numbered_by_frequency_in_the_training_text_then_by_code_point(
    level: tokens_module.Level, sources: DataSources
) -> None:
    task = a_task(sources, level=level, batching="sentences")
    splits = task.load(sources)
    cut = {"train": VERSE[:54], "validation": VERSE[54:57], "test": VERSE[57:]}
    end = {"word": "<eos>", "character": "\n"}[level]
    spelled = {
        name: [
            token for line in lines for token in (*(line.split() if level == "word" else line), end)
        ]
        for name, lines in cut.items()
    }
    counts = Counter(spelled["train"])
    ranked = sorted(counts, key=lambda token: (-counts[token], token))
    assert task.facts is not None
    assert task.facts.vocabulary == len(ranked)
    assert task.facts.tokens == {name: len(split) for name, split in spelled.items()}
    assert task.facts.lines == {name: len(lines) for name, lines in cut.items()}
    for name, samples in zip(cut, (splits.train, splits.validation, splits.test), strict=True):
        assert [ranked[number] for number in every_target(samples)] == spelled[name]


@pytest.mark.parametrize(
    ("unknown", "train", "held_out", "vocabulary"),
    [
        ("spelled", "a<unk>", "ka", 7),
        ("spelled", "a<unk>", "kab", 8),
        ("spare", "a<unk>", "ka", 8),
        ("spare", "a<unk>", "kab", 8),
        ("symbol", "a<unk>", "a", 3),
        ("symbol", "a<unk>", "ab<unk>", 3),
        ("symbol", "a", "b", 3),
        ("symbol", "ab", "b", 3),
    ],
)
def test_unknown_characters_get_a_symbol_when_they_need_one(
    unknown: tokens_module.Unknown, train: str, held_out: str, vocabulary: int
) -> None:
    texts = {"train": f"{train}\n", "validation": f"{held_out}\n", "test": "a\n"}
    encoded = tokens_module.encode_characters(texts, unknown)
    assert encoded.vocabulary == vocabulary
    assert all(int(split.max()) < vocabulary for split in encoded.tokens.values())


def test_words_that_the_training_text_lacks_are_its_unk_or_come_last() -> None:
    texts = {"train": "a b a\n", "validation": "c a\n", "test": "b\n"}
    added = tokens_module.encode_words(texts, "spelled")
    assert added.vocabulary == 4
    assert added.tokens["validation"].tolist() == [1, 3, 0, 1]
    own = tokens_module.encode_words({**texts, "train": "a <unk> a\n"}, "spelled")
    assert own.vocabulary == 3
    assert own.tokens["validation"].tolist() == [1, 2, 0, 1]
    assert own.tokens["test"].tolist() == [1, 2, 1]


@pytest.mark.parametrize("end", ["<eos>", "\t<eos> "])
def test_a_text_may_say_itself_where_its_lines_end(sources: DataSources, end: str) -> None:
    assert sources.folder is not None
    write(sources.folder / "ends.txt", [f"{line} {end}" for line in VERSE])
    options = {"level": "word", "batching": "sentences"}
    plain, marked = (a_task(sources, file=f"{name}.txt", **options) for name in ("verse", "ends"))
    assert plain.facts is not None
    assert marked.facts is not None
    assert marked.facts.model_copy(update={"sha256": plain.facts.sha256}) == plain.facts
    assert marked.signature() == plain.signature()
    assert every_target(marked.load(sources).train) == every_target(plain.load(sources).train)
    characters = a_task(sources, file="ends.txt")
    assert characters.facts is not None
    assert characters.facts.tokens["test"] > len("".join(VERSE[57:])) + 3 * len(end)


@pytest.mark.parametrize("line", ["a <eos> b <eos>", "<eos> b", "a <eos> <eos>"])
def test_an_end_within_a_line_is_refused_by_file_and_line(sources: DataSources, line: str) -> None:
    assert sources.folder is not None
    write(sources.folder / "ends.txt", [*VERSE, line])
    with pytest.raises(
        DataError, match=r"ends\.txt, line 61: <eos> is word [12] of [234]; allowed"
    ):
        a_task(sources, file="ends.txt", level="word")


def test_only_texts_that_say_where_lines_end_are_numbered_again(
    sources: DataSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What earlier programs stored stays of use, except where they read ends twice."""
    assert sources.folder is not None
    write(sources.folder / "ends.txt", [f"{line} <eos>" for line in VERSE])
    named: list[str] = []

    def recorded(folder: Path, *arguments: Any) -> Any:
        named.append(folder.name)
        return cached_arrays(folder, *arguments)

    monkeypatch.setattr("search.tasks.text.language.cached_arrays", recorded)
    before = {}
    for file in ("verse.txt", "ends.txt"):
        sha256 = hashlib.sha256((sources.folder / file).read_bytes()).hexdigest()
        for level in ("word", "character"):
            a_task(sources, file=file, level=level)
            key = f"2/{level}/spelled/False/whole/{sha256}"
            digest = hashlib.sha256(key.encode()).hexdigest()[:32]
            before[file, level] = named.pop() == f"language-{digest}"
    assert [case for case, same in before.items() if not same] == [("ends.txt", "word")]


@pytest.mark.parametrize("batching", ["stream", "sentences"])
@pytest.mark.parametrize("level", ["word", "character"])
def test_uniform_logits_get_the_baseline_and_perplexity_v(
    level: str, batching: str, sources: DataSources
) -> None:
    task = a_task(sources, level=level, batching=batching)
    size, meter = task.signature().output_size, task.meter()
    test = task.load(sources).test
    for named in test.batches(3, None):
        y = test.take(named).y
        uniform = torch.full((*y.shape, size), 0.3, dtype=torch.float64)
        meter.add(uniform, y)
        assert task.loss(uniform, y).item() == pytest.approx(math.log(size), rel=1e-12)
    values = meter.values()
    assert values["perplexity"] == pytest.approx(size, rel=1e-12)
    assert values[task.metric.name] == pytest.approx(task.metric.baseline, rel=1e-12)
    assert ("perplexity_by_sentence" in values) == (batching == "sentences")
    if batching == "sentences":
        assert values["perplexity_by_sentence"] == pytest.approx(size, rel=1e-12)


def test_the_meter_is_a_loop_over_tokens_and_over_sentences() -> None:
    generator = torch.Generator().manual_seed(0)
    meter = LanguageMeter(bits="bits_per_character", by_sentence=True)
    every: list[float] = []
    means: list[float] = []
    for lengths in ([3, 1, 5], [2]):
        logits = torch.randn(len(lengths), max(lengths), 7, generator=generator).double() * 3
        y = torch.randint(7, (len(lengths), max(lengths)), generator=generator)
        for row, length in enumerate(lengths):
            y[row, length:] = IGNORED
            nats = [
                -math.log(math.exp(logits[row, t, y[row, t]]) / logits[row, t].exp().sum().item())
                for t in range(length)
            ]
            every += nats
            means.append(sum(nats) / length)
        meter.add(logits, y)
    mean = sum(every) / len(every)
    assert meter.values() == pytest.approx(
        {
            "perplexity": math.exp(mean),
            "bits_per_character": mean / math.log(2),
            "perplexity_by_sentence": math.exp(sum(means) / len(means)),
        },
        rel=1e-12,
    )
    assert meter.values()["perplexity_by_sentence"] != pytest.approx(math.exp(mean), rel=1e-3)


def test_outputs_too_wide_to_copy_at_once_are_counted_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits = torch.randn(3, 5, 11, generator=torch.Generator().manual_seed(0))
    y = torch.arange(15).view(3, 5) % 11
    whole = LanguageMeter(bits="bits", by_sentence=True)
    whole.add(logits, y)
    monkeypatch.setattr("search.tasks.text.language_meter._MOST_AT_ONCE", 30)
    parts = LanguageMeter(bits="bits", by_sentence=True)
    parts.add(logits, y)
    assert parts.values() == whole.values()


def test_a_perplexity_beyond_float64_is_infinite() -> None:
    meter = LanguageMeter(bits="bits_per_word", by_sentence=False)
    meter.add(torch.tensor([[[0.0, 2000.0]]]), torch.tensor([[0]]))
    assert meter.values()["perplexity"] == math.inf
    assert meter.values()["bits_per_word"] == pytest.approx(2000 / math.log(2))


def test_what_a_model_reads_is_tokens_or_symbols(sources: DataSources) -> None:
    by_character = a_task(sources).signature()
    assert by_character.vocabulary is None
    characters = {*"".join(VERSE), "\n"}
    assert by_character.input_size == by_character.output_size == len(characters)
    assert a_task(sources).metric.baseline == math.log2(len(characters))
    embedded = a_task(sources, embedding=5).signature()
    assert (embedded.input_size, embedded.vocabulary) == (5, embedded.output_size)
    by_word = a_task(sources, level="word", window=7).signature()
    assert (by_word.input_size, by_word.sequence_length) == (128, 7)
    assert by_word.vocabulary == by_word.output_size == 9
    sentences = a_task(sources, level="word", batching="sentences").signature()
    assert sentences.sequence_length == 4  # 16 words and 6 ends in 6 lines
    assert {by_character.output_steps, by_word.output_steps} == {"every"}


def test_long_lines_are_left_out_of_training_only(sources: DataSources) -> None:
    splits = a_task(sources, level="word", batching="sentences", longest=3).load(sources)
    assert splits.sizes == {"train": 45, "validation": 3, "test": 3}


def test_a_text_without_short_lines_leaves_nothing_to_train_on(sources: DataSources) -> None:
    assert sources.folder is not None
    write(sources.folder / "long.txt", ["much too long"] * 9)
    task = a_task(sources, file="long.txt", level="word", batching="sentences", longest=2)
    with pytest.raises(DataError, match=r"long\.txt: no training line has at most longest = 2"):
        task.load(sources)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzipped"])
def test_three_files_are_taken_as_they_are(sources: DataSources, packed: bool) -> None:
    assert sources.folder is not None
    for part, line in {"train": "one two", "valid": "two", "test": "two three"}.items():
        path = sources.folder / f"mine.{part}.txt"
        write(path, [line])
        if packed:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
    facts = a_task(sources, file="mine.txt", level="word").facts
    assert facts is not None
    assert facts.vocabulary == 4
    assert facts.tokens == {"train": 3, "validation": 2, "test": 3}
    assert list(facts.sha256) == ["mine.train.txt", "mine.valid.txt", "mine.test.txt"]


def test_a_missing_part_is_named(sources: DataSources) -> None:
    assert sources.folder is not None
    write(sources.folder / "mine.train.txt", ["one"])
    with pytest.raises(DataError, match=r"mine\.valid\.txt"):
        a_task(sources, file="mine.txt")


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"file": "absent.txt"}, "absent.txt"),
        ({"corpus": "ptb", "file": None}, "ptb/ptb.train.txt"),
    ],
)
def test_a_missing_text_is_named_with_its_place(
    options: dict[str, Any], found: str, sources: DataSources
) -> None:
    with pytest.raises(DataError) as refused:
        a_task(sources, **options)
    assert str(sources.folder) in str(refused.value)
    assert found in str(refused.value)
    with pytest.raises(DataError, match="REFLECTORY_DATA"):
        a_task(DataSources(cache=sources.cache), **options)


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"corpus": "file"}, "file is None"),
        ({"file": "a.txt"}, "file is 'a.txt'"),
        ({"corpus": "file", "file": "../a.txt"}, "pattern"),
        ({"corpus": "file", "file": "a/b.txt"}, "pattern"),
        ({"corpus": "file", "file": "a\\b.txt"}, "pattern"),
        ({"corpus": "file", "file": ".hidden"}, "pattern"),
        ({"corpus": "file", "file": "a\0.txt"}, "pattern"),
        ({"corpus": "file", "file": ""}, "pattern"),
        ({"level": "word", "unknown": "spare"}, "level 'character'"),
        ({"batching": "sentences", "window": 10}, "batching 'stream'"),
        ({"longest": 10}, "batching 'sentences'"),
        ({"corpus": "another"}, "wikitext-2"),
    ],
)
def test_options_without_a_meaning_and_names_that_are_paths_are_refused(
    options: dict[str, Any], found: str
) -> None:
    with pytest.raises(ValidationError, match=found.replace("\\", "\\\\")):
        Language(**options)


def test_nothing_is_known_before_the_text_was_looked_at() -> None:
    for ask in (lambda task: task.metric, Language.signature):
        with pytest.raises(TaskUnresolved, match="tinyshakespeare"):
            ask(Language())


def test_facts_are_computed_anew_and_a_text_that_changed_is_refused(sources: DataSources) -> None:
    assert sources.folder is not None
    task = a_task(sources)
    assert task.facts is not None
    wrong = task.facts.model_copy(update={"vocabulary": 3})
    sent = task.model_copy(update={"facts": wrong})
    assert sent.resolved(sources) == task
    with pytest.raises(DataError, match=r"verse\.txt: the text has changed"):
        sent.load(sources)
    write(sources.folder / "verse.txt", [*VERSE, "more"])
    with pytest.raises(DataError, match=r"verse\.txt: the text has changed"):
        task.load(sources)


def test_a_text_of_blank_lines_is_refused(sources: DataSources) -> None:
    assert sources.folder is not None
    write(sources.folder / "blank.txt", [""] * 9)
    with pytest.raises(DataError, match=r"blank\.txt: the text has nothing but ends of lines"):
        a_task(sources, file="blank.txt")


def test_a_second_trial_numbers_nothing_again(
    sources: DataSources, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = a_task(sources, level="word")

    def refuse(*arguments: object) -> None:
        raise AssertionError(arguments)

    monkeypatch.setitem(tokens_module.ENCODERS, "word", refuse)  # pyright: ignore[reportArgumentType]
    assert task.load(sources).sizes == task.facts.tokens  # pyright: ignore[reportOptionalMemberAccess]
    with pytest.raises(AssertionError):
        task.load(DataSources(cache=sources.cache / "other", folder=sources.folder))


def test_another_text_under_a_known_name_is_refused(sources: DataSources) -> None:
    assert sources.folder is not None
    write(sources.folder / "text" / "tinyshakespeare" / "input.txt", VERSE)
    with pytest.raises(DataError, match=r"input\.txt is not tinyshakespeare: its SHA-256"):
        Language().resolved(sources)


@pytest.mark.parametrize("corpus", ["wikitext-2", "tinyshakespeare"])
def test_a_text_that_can_be_fetched_is_resolved_without_it(
    corpus: str, sources: DataSources
) -> None:
    for folder in (None, sources.folder):
        task = Language.model_validate({"corpus": corpus, "level": "word"})
        resolved = task.resolved(DataSources(cache=sources.cache, folder=folder))
        assert resolved.signature().vocabulary == resolved.metric.baseline
        assert not sources.cache.exists()
    with pytest.raises(DataError, match=r"the data folder .* does not exist"):
        task.resolved(DataSources(cache=sources.cache, folder=sources.cache / "absent"))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A place on loopback from which files are fetched, and its folder."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder)) as http:
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/", folder
        http.shutdown()
        thread.join()


def test_a_text_that_is_fetched_must_be_the_known_one(
    server: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = server
    monkeypatch.setattr("time.sleep", lambda _: None)  # between tries
    write(folder / "distributed" / "minGPT-ddp" / "mingpt" / "data" / "input.txt", VERSE)
    sources = DataSources(cache=tmp_path / "cache", mirrors={"language": Mirror(url)})
    with pytest.raises(DataError, match=r"input\.txt could not be fetched"):
        Language().resolved(sources).load(sources)


# What the vocabulary, the tokens and the rest of the known texts are.


@pytest.fixture
def real() -> Path:
    return real_data()


@pytest.mark.parametrize(
    ("options", "vocabulary", "tokens"),
    [
        ({"corpus": "ptb", "level": "word"}, 10_000, (929_589, 73_760, 82_430)),
        ({"corpus": "ptb"}, 50, (5_017_482, 393_042, 442_423)),
        ({"corpus": "ptb", "unknown": "spare"}, 51, (5_017_482, 393_042, 442_423)),
        ({"corpus": "ptb", "unknown": "symbol"}, 49, (4_837_402, 379_102, 423_247)),
        ({"corpus": "wikitext-2", "level": "word"}, 33_278, (2_088_628, 217_646, 245_569)),
        ({"corpus": "tinyshakespeare"}, 65, (1_016_242, 51_726, 47_426)),
    ],
    ids=lambda value: "-".join(value.values()) if isinstance(value, dict) else None,
)
def test_real_texts_have_the_counts_that_papers_give(
    options: dict[str, Any],
    vocabulary: int,
    tokens: tuple[int, ...],
    real: Path,
    tmp_path: Path,
) -> None:
    sources = DataSources(cache=tmp_path, folder=real)
    try:
        task = Language(**options).resolved(sources)
    except DataError as error:
        pytest.skip(str(error))
    assert task.facts is not None
    assert task.facts.vocabulary == vocabulary
    assert tuple(task.facts.tokens.values()) == tokens
    splits = task.load(sources)
    assert tuple(splits.sizes.values()) == tokens


@pytest.mark.parametrize("corpus", ["wikitext-2", "tinyshakespeare"])
@pytest.mark.parametrize(
    ("level", "unknown"),
    [
        ("word", "spelled"),
        ("character", "spelled"),
        ("character", "spare"),
        ("character", "symbol"),
    ],
)
def test_what_is_said_of_texts_that_are_not_there_is_what_they_hold(
    corpus: Any, level: Any, unknown: Any, real: Path, tmp_path: Path
) -> None:
    task = Language(corpus=corpus, level=level, unknown=unknown)
    if not any((real / place).is_dir() for place in CORPORA[task.corpus].places):  # pyright: ignore[reportArgumentType]
        pytest.skip(f"{real} does not hold {corpus}")
    found = task.resolved(DataSources(cache=tmp_path, folder=real)).facts
    assert found == known_facts(corpus, level, unknown)


def test_a_real_text_is_fetched_and_read(
    real: Path, server: tuple[str, Path], tmp_path: Path
) -> None:
    url, folder = server
    stored = real / "text" / "tinyshakespeare" / "input.txt.gz"
    if not stored.is_file():
        pytest.skip(f"{stored} is not there")
    served = folder / "distributed" / "minGPT-ddp" / "mingpt" / "data" / "input.txt"
    served.parent.mkdir(parents=True)
    served.write_bytes(gzip.decompress(stored.read_bytes()))
    sources = DataSources(cache=tmp_path / "cache", mirrors={"language": Mirror(url)})
    task = Language().resolved(sources)
    first = task.load(sources)
    served.unlink()
    again = task.load(sources)
    assert first.sizes == again.sizes == {"train": 1_016_242, "validation": 51_726, "test": 47_426}


# Training.


def counting_lines(count: int) -> list[str]:
    """Lines that count up by 1 to 3 from somewhere, modulo 10, as letters: easy to go on with."""
    draw = random.Random(0)
    lines: list[str] = []
    for _ in range(count):
        place, step = draw.randrange(10), draw.randint(1, 3)
        lines.append("".join("abcdefghij"[(place + t * step) % 10] for t in range(12)))
    return lines


def a_job(task: Language, *, epochs: int, checkpoint_seconds: float = 1e9) -> TrainJob:
    model = ModelSpec(
        architecture=Gru(hidden_size=24), parametrization=Dense(), signature=task.signature()
    )
    training = TrainingSpec(learning_rate=0.02, batch_size=8)
    return TrainJob(
        task=task,
        trial=TrialSpec(model=model, training=training, seed=3),
        number=0,
        epochs=epochs,
        checkpoint_seconds=checkpoint_seconds,
    )


@pytest.mark.parametrize("options", [{}, {"embedding": 6}, {"batching": "sentences"}], ids=str)
def test_a_small_gru_learns_more_than_how_often_each_character_comes(
    options: dict[str, Any], sources: DataSources
) -> None:
    assert sources.folder is not None
    lines = counting_lines(400)
    write(sources.folder / "counting.txt", lines)
    task = a_task(sources, file="counting.txt", **options)
    result = train(a_job(task, epochs=3), task.load(sources), task=task, hooks=RecordingHooks())
    counts = Counter("".join(f"{line}\n" for line in lines))
    total = counts.total()
    entropy = -sum(n / total * math.log2(n / total) for n in counts.values())
    assert entropy > 3.4
    # Eleven of thirteen characters follow; the first is one of ten, the second one of three.
    assert result.test_quality is not None
    assert result.test_quality < entropy / 2
    assert result.test_metrics["bits_per_character"] == result.test_quality
    assert result.test_metrics["perplexity"] == pytest.approx(2**result.test_quality)


def test_the_state_that_is_carried_on_tells_what_stood_before_the_window(
    sources: DataSources,
) -> None:
    """With windows of one step, a model without a carried state knows one character only."""
    assert sources.folder is not None
    write(sources.folder / "turns.txt", ["aabb" * 3] * 200)
    task = a_task(sources, file="turns.txt", window=1)
    splits = task.load(sources)
    module = train(
        a_job(a_task(sources, file="turns.txt", window=12), epochs=4),
        a_task(sources, file="turns.txt", window=12).load(sources),
        task=task,
        hooks=RecordingHooks(),
    ).module
    carried, forgotten = task.meter(), task.meter()
    assert isinstance(module, Network)
    state: tuple[torch.Tensor, ...] = ()
    with torch.no_grad():
        for named in splits.test.batches(4, None):
            batch = splits.test.take(named)
            output, state = module.step(batch.x, state)
            carried.add(output, batch.y)
            forgotten.add(module(batch.x), batch.y)
    assert carried.values()["bits_per_character"] < 0.3
    assert forgotten.values()["bits_per_character"] > 0.6


def test_a_resumed_run_with_a_carried_state_equals_an_unbroken_one_bit_for_bit(
    sources: DataSources,
) -> None:
    assert sources.folder is not None
    write(sources.folder / "counting.txt", counting_lines(60))
    task = a_task(sources, file="counting.txt", window=20)
    splits = task.load(sources)
    job = a_job(task, epochs=2, checkpoint_seconds=0)
    unbroken = RecordingHooks()
    whole = train(job, splits, task=task, hooks=unbroken)
    batches = len(splits.train.batches(8, torch.Generator()))
    assert len(unbroken.saved) == 2 * (batches + 1)
    for cut in (0, 2, batches - 1, batches, batches + 3):
        hooks = RecordingHooks()
        resumed = train(job, splits, task=task, hooks=hooks, resume=unbroken.saved[cut])
        assert resumed.test_metrics == whole.test_metrics
        assert resumed.quality == whole.quality
        for name, value in whole.module.state_dict().items():
            assert torch.equal(resumed.module.state_dict()[name], value)
        ours, theirs = hooks.reports[-1], unbroken.reports[-1]
        assert ours.train_loss == theirs.train_loss
