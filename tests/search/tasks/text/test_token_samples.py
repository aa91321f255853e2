import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from search.tasks.samples import IGNORED
from search.tasks.text.token_samples import Sentences, TokenStream

FEW = settings(max_examples=80, deadline=None)


def a_stream(count: int, window: int, **options) -> TokenStream:
    """Tokens whose value is their place: 0 is read first, 1 to `count` are the targets."""
    return TokenStream(torch.arange(count + 1, dtype=torch.int32), window, **options)


@FEW
@given(
    count=st.integers(1, 90),
    window=st.integers(1, 12),
    size=st.integers(1, 30),
    evaluated=st.booleans(),
)
def test_windows_cover_every_token_once_after_the_one_before_it_and_rows_go_on(
    count: int, window: int, size: int, evaluated: bool
) -> None:
    stream = a_stream(count, window)
    generator = None if evaluated else torch.Generator()
    batches = [stream.take(named) for named in stream.batches(size, generator)]
    assert sum(batch.counts for batch in batches) == count == len(stream)
    assert len({len(batch.x) for batch in batches}) == 1, "a state fits the next batch's rows"
    x = torch.cat([batch.x for batch in batches], dim=1)
    y = torch.cat([batch.y for batch in batches], dim=1)
    asked = y != IGNORED
    assert sorted(y[asked].tolist()) == list(range(1, count + 1))
    assert torch.equal(x[asked], y[asked] - 1)
    # Row by row the text's order is kept, without a gap from window to window.
    assert y[asked].tolist() == list(range(1, count + 1))
    for batch in batches:
        assert batch.y.shape[1] <= window
        assert batch.counts == int((batch.y != IGNORED).sum()) >= 1
        assert batch.lengths is None
    assert asked[:, :-1].all(), "only the very last step may be padded"


def test_the_last_short_window_is_kept() -> None:
    stream = a_stream(22, 4)
    batches = [stream.take(named) for named in stream.batches(2, torch.Generator())]
    assert [tuple(batch.x.shape) for batch in batches] == [(2, 4), (2, 4), (2, 3)]
    assert batches[2].y.tolist() == [[9, 10, 11], [20, 21, 22]]


@pytest.mark.parametrize(
    ("count", "size", "rows"), [(10_000, 256, 20), (10_000, 7, 7), (100, 256, 2), (3, 256, 1)]
)
def test_evaluation_uses_at_most_20_rows_and_fewer_for_a_short_text(
    count: int, size: int, rows: int
) -> None:
    stream = a_stream(count, 35)
    assert all(len(stream.take(named).x) == rows for named in stream.batches(size, None))


def test_a_stream_has_the_same_order_in_every_epoch() -> None:
    stream, generator = a_stream(50, 6), torch.Generator().manual_seed(0)
    one, other = stream.batches(3, generator), stream.batches(3, generator)
    assert all(torch.equal(*pair) for pair in zip(one, other, strict=True))
    assert stream.carries_state


LINES = st.lists(st.lists(st.integers(1, 5), max_size=8), min_size=1, max_size=20)


def written(lines: list[list[int]]) -> torch.Tensor:
    """Lines of tokens, each ended by a 0."""
    return torch.tensor([0, *(token for line in lines for token in (*line, 0))], dtype=torch.int32)


@FEW
@given(lines=LINES, size=st.integers(1, 40), longest=st.integers(1, 9) | st.none())
def test_sentences_are_read_by_themselves_from_an_end_mark_to_their_own(
    lines: list[list[int]], size: int, longest: int | None
) -> None:
    sentences = Sentences.of(written(lines), longest=longest)
    kept = [line for line in lines if longest is None or len(line) <= longest]
    # A task without a single line is refused before there are samples.
    assume(kept)
    assert len(sentences) == len(kept)
    seen: list[list[int]] = []
    for named in sentences.batches(size, None):
        batch = sentences.take(named)
        assert batch.lengths is not None
        assert batch.counts == int(batch.lengths.sum())
        assert batch.x.shape == batch.y.shape == (len(named), int(batch.lengths.max()))
        for x, y, length in zip(batch.x, batch.y, batch.lengths.tolist(), strict=True):
            assert x[:length].tolist() == [0, *y[: length - 1].tolist()]
            assert y[length:].eq(IGNORED).all()
            assert y[length - 1] == 0
            seen.append(y[: length - 1].tolist())
    assert seen == kept


def test_sentences_are_shuffled_anew_in_each_epoch_and_none_is_left_out() -> None:
    sentences = Sentences.of(written([[1]] * 100))
    generator = torch.Generator().manual_seed(3)
    one, other = (torch.cat(list(sentences.batches(7, generator))) for _ in range(2))
    assert not torch.equal(one, other)
    assert sorted(one.tolist()) == sorted(other.tolist()) == list(range(100))
    assert [len(named) for named in sentences.batches(64, generator)] == [64, 36]
    assert [len(named) for named in sentences.batches(256, None)] == [32, 32, 32, 4]
    assert not sentences.carries_state


@pytest.mark.parametrize("kind", ["stream", "sentences"])
def test_one_hot_symbols_say_the_same_as_tokens(kind: str) -> None:
    tokens = written([[1, 2], [], [3, 1, 1]])
    samples = {
        "stream": (TokenStream(tokens, 3), TokenStream(tokens, 3, 4)),
        "sentences": (Sentences.of(tokens), Sentences.of(tokens, one_hot=4)),
    }[kind]
    for named in samples[0].batches(2, None):
        numbers, symbols = samples[0].take(named), samples[1].take(named)
        assert numbers.x.dtype == numbers.y.dtype == torch.int64
        assert symbols.x.dtype == torch.float32
        assert torch.equal(symbols.x, torch.nn.functional.one_hot(numbers.x, 4).float())
        assert torch.equal(symbols.y, numbers.y)


@pytest.mark.gpu
def test_a_gpu_gets_the_same_batches() -> None:
    tokens = written([[1, 2], [], [3, 1, 1]])
    for samples in (TokenStream(tokens, 3), Sentences.of(tokens, one_hot=4)):
        moved = samples.to(torch.device("cuda"))
        for named in samples.batches(2, None):
            here, there = samples.take(named), moved.take(named)
            assert there.x.is_cuda
            assert there.y.is_cuda
            assert torch.equal(here.x, there.x.cpu())
            assert torch.equal(here.y, there.y.cpu())
            assert here.weight == there.weight
