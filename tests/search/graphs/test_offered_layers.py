import base64
import zlib

import pytest

from models.graphs.fits import Dense, LowRank
from search.graphs.network_trial import NetworkTrial, label_of
from search.graphs.offered_layers import OfferedLayers
from search.graphs.picks import Pick
from tests.search.graphs.small_networks import evaluator, offers


def offered() -> OfferedLayers:
    return OfferedLayers(offers(("bytes", "multiply_adds")), other_bytes=300, other_parameters=288)


def test_offers_are_the_same_after_they_were_written_and_read() -> None:
    before = offered()
    after = OfferedLayers.decoded(before.encoded())
    assert (after.other_bytes, after.other_parameters) == (300, 288)
    assert [one.name for one in after.layers] == ["w1", "w2"]
    for own, other in zip(before.layers, after.layers, strict=True):
        assert [offer.pick for offer in own.offers] == [offer.pick for offer in other.offers]
        assert [offer.numbers for offer in own.offers] == [offer.numbers for offer in other.offers]
        assert [offer.costs.bytes for offer in own.offers] == [
            offer.costs.bytes for offer in other.offers
        ]
        for one, read in zip(own.offers, other.offers, strict=True):
            assert read.error == pytest.approx(one.error, rel=1e-5)
        assert other.plain_sensitivity == pytest.approx(own.plain_sensitivity, rel=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "no base64!",
        base64.b64encode(b"nothing packed").decode(),
        base64.b64encode(zlib.compress(b"[]")).decode(),
        base64.b64encode(zlib.compress(b'[[["w", 1, 1, []]], 0, 0]')).decode(),
        base64.b64encode(zlib.compress(b'[[["w", 1, 1, [[{"kind": "x"}]]]], 0, 0]')).decode(),
    ],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no offers"):
        OfferedLayers.decoded(text)


def test_text_that_unpacks_to_too_much_is_refused() -> None:
    with pytest.raises(ValueError, match="no offers"):
        OfferedLayers.decoded(offered().encoded(), most_bytes=1000)


def test_a_trial_knows_its_counts_and_its_bytes_beforehand() -> None:
    known = offered()
    whole = known.trial({}, seed=3, original_bytes=12345)
    assert (whole.bytes, whole.form, whole.is_original) == (12345, "original", True)
    assert whole.parameters == whole.dense_parameters == 288 + 40 * 48 + 48 * 48
    rounded = known.trial({"w1": Pick(choice=Dense(bits=8))}, seed=3, original_bytes=12345)
    assert (rounded.form, rounded.parameters) == ("bits", whole.parameters)
    held = evaluator(("bytes", "multiply_adds"))
    exact = len(held.content(rounded.picks)) - len(held.content({}))
    layers = sum(layer.stored_bytes for layer in held.layers)
    assert rounded.bytes - (known.other_bytes + layers) == pytest.approx(exact, abs=1024)
    factored = known.trial(
        {"w2": Pick(choice=LowRank(rank=7, run=True))}, seed=3, original_bytes=12345
    )
    assert factored.form == "structure"
    assert factored.parameters == whole.parameters - 48 * 48 + 7 * (48 + 48)
    assert known.costs(factored).multiply_adds < known.costs(whole).multiply_adds


def test_trials_take_the_same_time_if_the_same_factors_run() -> None:
    def key(**picks: Pick) -> str:
        trial = NetworkTrial(picks=picks, parameters=1, dense_parameters=1, bytes=1, seed=0)
        return trial.shape_key()

    eight, four = Pick(choice=Dense(bits=8)), Pick(choice=Dense(bits=4), compensated=False)
    run = Pick(choice=LowRank(rank=7, run=True))
    assert key() == "original"
    assert key(w1=eight) == key(w1=four, w2=eight) == key(w1=Pick(choice=LowRank(rank=7)))
    assert key(w1=run) == key(w1=Pick(choice=LowRank(rank=7, bits=8, run=True)), w2=four)
    assert len({key(), key(w1=eight), key(w1=run), key(w2=run)}) == 4
    assert key(w1=run) != key(w1=Pick(choice=LowRank(rank=6, run=True)))


@pytest.mark.parametrize(
    ("pick", "words"),
    [
        (Pick(choice=Dense()), "as it is"),
        (Pick(choice=Dense(bits=4, group=24)), "4 bits, blocks of 24"),
        (Pick(choice=Dense(bits=4), compensated=False), "4 bits, plain"),
        (Pick(choice=LowRank(rank=7, bits=8, run=True)), "rank 7, 8 bits, run"),
    ],
)
def test_choices_have_words_for_tables(pick: Pick, words: str) -> None:
    assert label_of(pick) == words
