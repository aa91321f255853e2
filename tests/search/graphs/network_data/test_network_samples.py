import io

import numpy as np
import pytest

from models.graphs.reading import graph_facts
from models.graphs.sessions import GraphSession
from search.errors import DataError, SpecRefused
from search.graphs.network_data import network_samples, read_samples
from tests.search.graphs.small_networks import INPUTS, classifier, recurrent, vectors

CLASSIFIER = graph_facts(classifier()).inputs
RECURRENT = graph_facts(recurrent()).inputs


def test_feeds_hold_all_samples_of_their_places_in_order() -> None:
    arrays = vectors(100)
    samples = network_samples(CLASSIFIER, {"x": arrays})
    places = samples.split.calibration
    feeds = samples.feeds(places)
    assert len(feeds) == 5
    assert np.array_equal(np.concatenate([feed["x"] for feed in feeds]), arrays[places])


def test_each_sample_is_fed_as_it_is_with_first_states_of_zeros() -> None:
    arrays = np.random.default_rng(0).standard_normal((60, 9, 2, 14)).astype(np.float32)
    samples = network_samples(RECURRENT, {"x": arrays}, each=True, zeros=("h", "c"))
    feeds = samples.feeds(samples.split.choosing)
    assert len(feeds) == len(samples.split.choosing)
    place = samples.split.choosing[3]
    assert np.array_equal(feeds[3]["x"], arrays[place])
    # The batch has the size that the samples have under the same name.
    assert feeds[3]["h"].shape == (1, 2, 20)
    assert not feeds[3]["c"].any()
    session = GraphSession(recurrent().SerializeToString())
    answer = session.run(feeds[3])["y"]
    assert samples.by_sample("y", [answer], 1) == [answer]


def test_answers_are_those_of_single_samples() -> None:
    arrays = vectors(50)
    samples = network_samples(CLASSIFIER, {"x": arrays})
    session = GraphSession(classifier().SerializeToString())
    places = samples.split.test
    found = samples.by_sample(
        "y", [session.run(feed)["y"] for feed in samples.feeds(places)], len(places)
    )
    for place, one in zip(places, found, strict=True):
        alone = session.run({"x": arrays[place : place + 1]})["y"][0]
        assert np.allclose(one, alone, atol=1e-6)


def test_an_output_without_an_axis_of_samples_is_refused() -> None:
    samples = network_samples(CLASSIFIER, {"x": vectors(50)})
    with pytest.raises(SpecRefused, match=r"gives 2 answers to 10 samples.*\(each\)"):
        samples.by_sample("y", [np.zeros((1, 6)), np.zeros((1, 6))], 10)


@pytest.mark.parametrize(
    ("arrays", "zeros", "each", "message"),
    [
        (
            {},
            (),
            False,
            r"task.inputs.x: the data have no array for it, which is float32 \[N, 40\]",
        ),
        ({"z": vectors()}, ("x",), False, "task.inputs.z: the network has no such input"),
        ({"x": vectors()}, ("x",), False, "task.inputs.x: it has an array and is named in zeros"),
        ({"x": vectors().astype(np.float64)}, (), False, "holds float64; the input takes float32"),
        (
            {"x": vectors()[:, 1:]},
            (),
            False,
            r"task.inputs.x: the array is \[160, 39\]; the input takes float32 \[N, 40\]",
        ),
        ({"x": vectors()}, (), True, r"a sample is \[40\]; the input takes float32 \[N, 40\]"),
        ({"x": vectors(30)}, (), False, "12 of 30 samples are for calibration; at least 16"),
    ],
)
def test_samples_that_do_not_fit_are_refused(
    arrays: dict[str, np.ndarray], zeros: tuple[str, ...], each: bool, message: str
) -> None:
    with pytest.raises(SpecRefused, match=message):
        network_samples(CLASSIFIER, arrays, zeros=zeros, each=each)


def test_inputs_have_as_many_samples_as_each_other() -> None:
    arrays = {"x": np.zeros((50, 9, 1, 14), np.float32), "h": np.zeros((49, 1, 1, 20), np.float32)}
    with pytest.raises(SpecRefused, match="50 of 'x', 49 of 'h'"):
        network_samples(RECURRENT, arrays, each=True, zeros=("c",))


def test_an_archive_is_read_by_the_names_of_inputs() -> None:
    file = io.BytesIO()
    pictures = np.random.default_rng(0).standard_normal((50, 9, 1, 14)).astype(np.float32)
    np.savez(file, x=pictures)
    samples = read_samples(file, RECURRENT, most_bytes=2**20, each=True, zeros=("h", "c"))
    assert np.array_equal(samples.arrays["x"], pictures)
    with pytest.raises(DataError, match="allowed are the keys x"):
        read_samples(file, CLASSIFIER[:0] or _renamed(), most_bytes=2**20)


def _renamed():
    assert CLASSIFIER[0].shape == ("N", INPUTS)
    return [CLASSIFIER[0].model_copy(update={"name": "xs"})]
