"""Every metric against a closed form, and what all of them promise."""

import math

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from models.spec import kind_of
from search.errors import SpecRefused, TrainingDiverged
from search.graphs.metrics import (
    Agreement,
    AnyMetric,
    Cosine,
    CtcString,
    Kl,
    LabelAccuracy,
    Metric,
    RelativeError,
    compared,
    default_metric,
)

METRICS: tuple[type[Metric], ...] = (
    Kl,
    Agreement,
    RelativeError,
    Cosine,
    LabelAccuracy,
    CtcString,
)


def arrays(*values) -> list[np.ndarray]:
    return [np.array(value, dtype=np.float32) for value in values]


def softmax(x: np.ndarray) -> np.ndarray:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def drawn(samples: int = 20, *shape: int, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    return list(generator.standard_normal((samples, *(shape or (6, 5)))).astype(np.float32))


@pytest.mark.parametrize("variant", METRICS)
def test_a_metric_is_named_in_a_document(variant: type[Metric]) -> None:
    adapter = TypeAdapter[Metric](AnyMetric)
    made = adapter.validate_python({"kind": kind_of(variant)})
    assert type(made) is variant
    assert adapter.validate_json(made.model_dump_json()) == made
    with pytest.raises(ValidationError):
        adapter.validate_python({"kind": kind_of(variant), "unknown": 1})


@pytest.mark.parametrize("variant", METRICS)
def test_the_original_has_the_best_value(variant: type[Metric]) -> None:
    original = drawn()
    labels = [answer.argmax(-1) for answer in original]
    metric = variant()
    best = metric.by_sample(original, original, labels)
    expected = 1.0 if metric.direction == "maximize" else 0.0
    np.testing.assert_allclose(best, expected, atol=1e-12)
    worse = metric.by_sample(original, drawn(seed=1), labels)
    assert worse.shape == (20,)
    assert (worse.mean() < 1) if metric.direction == "maximize" else (worse.mean() > 0)


@pytest.mark.parametrize("variant", METRICS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_answers_that_are_no_numbers_are_refused(variant: type[Metric], value: float) -> None:
    original = drawn()
    found = [answer.copy() for answer in original]
    found[7][2, 1] = value
    labels = [answer.argmax(-1) for answer in original]
    with pytest.raises(TrainingDiverged, match=r"sample 7 \(from 0\) is not finite"):
        variant().by_sample(original, found, labels)


@pytest.mark.parametrize("variant", METRICS)
def test_answers_of_another_shape_are_refused(variant: type[Metric]) -> None:
    original = drawn()
    labels = [answer.argmax(-1) for answer in original]
    with pytest.raises(TrainingDiverged, match=r"sample 0 .* shape \[6, 4\]; .* has \[6, 5\]"):
        variant().by_sample(original, drawn(20, 6, 4), labels)


@pytest.mark.parametrize("variant", METRICS)
def test_samples_without_an_answer_are_as_good_as_the_original(variant: type[Metric]) -> None:
    original = drawn()
    worse = drawn(seed=1)
    labels = [answer.argmax(-1) for answer in original]
    metric = variant()
    plain = compared(metric, {"y": original}, {"y": worse}, labels).value
    nothing = np.zeros((0, 5), np.float32)
    found = compared(
        metric,
        {"y": [nothing, *original]},
        {"y": [nothing, *worse]},
        [np.zeros(0, np.int64), *labels],
    )
    best = 1.0 if metric.direction == "maximize" else 0.0
    assert found.value == pytest.approx((best + 20 * plain) / 21)
    with pytest.raises(TrainingDiverged, match="shape"):
        compared(metric, {"y": [nothing]}, {"y": original[:1]}, labels[:1])


def test_kl_of_two_distributions() -> None:
    original, found = arrays([0.5, 0.5], [1.0, 0.0]), arrays([0.25, 0.75], [0.5, 0.5])
    expected = [0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75), math.log(2)]
    np.testing.assert_allclose(Kl().by_sample(original, found), expected, rtol=1e-5)


def test_kl_of_logits_is_that_of_their_softmax() -> None:
    original, found = drawn(), drawn(seed=1)
    probable = [[softmax(answer) for answer in answers] for answers in (original, found)]
    np.testing.assert_allclose(
        Kl(logits=True).by_sample(original, found), Kl().by_sample(*probable), rtol=1e-4
    )
    shifted = [answer + 100 for answer in found]
    np.testing.assert_allclose(
        Kl(logits=True).by_sample(original, shifted),
        Kl(logits=True).by_sample(original, found),
        rtol=1e-4,
    )


def test_kl_of_columns_is_that_of_coins() -> None:
    p, q = 0.9, 0.6
    coin = p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))
    column = Kl(column=True)
    both = arrays([p, 0.5]), arrays([q, 0.5])
    np.testing.assert_allclose(column.by_sample(*both), [coin / 2], rtol=1e-5)
    # A number that is alone in its row, or in its sample, is a coin without being told so.
    for shape in ((1, 1), (1,), ()):
        one, other = np.full(shape, p, np.float32), np.full(shape, q, np.float32)
        np.testing.assert_allclose(Kl().by_sample([one], [other]), [coin], rtol=1e-5)
    logits = arrays([math.log(p / (1 - p))]), arrays([math.log(q / (1 - q))])
    np.testing.assert_allclose(Kl(logits=True).by_sample(*logits), [coin], rtol=1e-5)


def test_kl_of_certain_answers_is_finite() -> None:
    certain = Kl().by_sample(arrays([1.0, 0.0], [1.0]), arrays([0.0, 1.0], [0.0]))
    np.testing.assert_allclose(certain, math.log(1e7), rtol=1e-4)


def test_kl_is_the_mean_over_rows() -> None:
    original = arrays([[0.5, 0.5], [0.5, 0.5]])
    found = arrays([[0.5, 0.5], [0.25, 0.75]])
    one = Kl().by_sample(original, found)[0]
    assert one == pytest.approx(-0.25 * math.log(0.75), rel=1e-5)


def test_agreement_counts_decisions() -> None:
    original = arrays([[1, 2, 0], [5, 1, 1]], [[0, 0, 1], [0, 1, 0]])
    found = arrays([[0, 9, 0], [1, 5, 1]], [[0, 1, 0], [1, 0, 0]])
    np.testing.assert_array_equal(Agreement().by_sample(original, found), [0.5, 0.0])
    column = Agreement(column=True)
    one = column.by_sample(arrays([0.6, 0.4, 0.9, 0.1]), arrays([0.7, 0.6, 0.2, 0.3]))
    np.testing.assert_array_equal(one, [0.5])
    logits = Agreement(column=True, logits=True)
    two = logits.by_sample(arrays([0.4, -0.4]), arrays([0.1, 0.1]))
    np.testing.assert_array_equal(two, [0.5])


def test_relative_error_of_the_mean_is_one() -> None:
    original = drawn()
    mean = np.mean(original)
    flat = [np.full_like(answer, mean) for answer in original]
    metric = RelativeError()
    assert metric.by_sample(original, flat).mean() == pytest.approx(1, rel=1e-5)
    half = [mean + (answer - mean) / 2 for answer in original]
    assert metric.by_sample(original, half).mean() == pytest.approx(0.25, rel=1e-5)


def test_relative_error_of_a_constant_is_none_or_all() -> None:
    original = arrays([1, 1], [1, 1])
    found = arrays([1, 1], [1, 2])
    np.testing.assert_array_equal(RelativeError().by_sample(original, found), [0, np.inf])


def test_cosine_of_angles() -> None:
    original = arrays([1, 0], [1, 0], [1, 0], [[1, 0], [0, 2]], [0, 0], [0, 0])
    found = arrays([3, 3], [0, 1], [-2, 0], [[5, 0], [3, 0]], [0, 0], [1, 0])
    expected = [math.sqrt(0.5), 0, -1, 0.5, 1, 0]
    np.testing.assert_allclose(Cosine().by_sample(original, found), expected, atol=1e-7)


def test_labels_are_compared_with_decisions() -> None:
    found = arrays([[0, 1], [1, 0]], [[2, 1], [1, 0]])
    labels = [np.array([1, 1]), np.array([0, 0])]
    metric = LabelAccuracy()
    np.testing.assert_array_equal(metric.by_sample(found, found, labels), [0.5, 1.0])
    column = LabelAccuracy(column=True)
    yes = [np.array([True, False])] * 2
    both = arrays([0.9, 0.9], [0.1, 0.2])
    np.testing.assert_array_equal(column.by_sample(both, both, yes), [0.5, 0.5])
    # One decision and its label may have different shapes.
    single = arrays([[0.1, 0.9]])
    np.testing.assert_array_equal(metric.by_sample(single, single, [np.array(1)]), [1.0])


def test_labels_that_do_not_fit_are_refused() -> None:
    found = drawn()
    metric = LabelAccuracy()
    with pytest.raises(SpecRefused, match=r"task\.labels: missing"):
        metric.by_sample(found, found)
    with pytest.raises(SpecRefused, match=r"sample 0 .* has labels \[3\] of int64; .* \[6\]"):
        metric.by_sample(found, found, [np.zeros(3, dtype=np.int64)] * 20)
    with pytest.raises(SpecRefused, match="of float64"):
        metric.by_sample(found, found, [np.zeros(6)] * 20)


def symbols(*steps: int) -> np.ndarray:
    return np.eye(4, dtype=np.float32)[list(steps)]


def test_strings_are_collapsed_before_they_are_compared() -> None:
    word = symbols(0, 1, 1, 0, 1, 2, 2)
    same = symbols(1, 0, 1, 1, 2, 0, 0)
    shorter = symbols(1, 1, 1, 1, 2, 0, 0)
    metric = CtcString()
    values = metric.by_sample([word, word, word], [same, shorter, word])
    np.testing.assert_array_equal(values, [1, 0, 1])
    # With another blank the zeros are letters.
    np.testing.assert_array_equal(CtcString(blank=3).by_sample([word], [same]), [0])
    # Several strings in a sample have a share.
    both = np.stack([word, word]), np.stack([same, shorter])
    np.testing.assert_array_equal(metric.by_sample([both[0]], [both[1]]), [0.5])
    assert list(metric.decided([word, same, shorter])) == [0, 0, 1]


def test_strings_need_steps() -> None:
    with pytest.raises(TrainingDiverged, match=r"\[steps, symbols\]; they are \[4\]"):
        CtcString().by_sample(arrays([1, 0, 0, 0]), arrays([1, 0, 0, 0]))


def test_a_comparison_has_the_mean_its_interval_and_the_worst_samples() -> None:
    original = {"y": arrays(*([[1, 0]] * 30))}
    found = {"y": arrays(*([[1, 0]] * 27), *([[0, 1]] * 3))}
    agreement = compared(Agreement(), original, found)
    assert agreement.value == pytest.approx(0.9)
    assert agreement.samples == 30
    assert agreement.worst == (27, 28, 29, 0, 1, 2, 3, 4, 5, 6)
    assert agreement.interval is not None
    assert agreement.interval.low < 0.9 < agreement.interval.high
    divergence = compared(Kl(), original, found)
    assert divergence.interval is None
    assert divergence.worst[:3] == (27, 28, 29)


def test_several_outputs_have_the_mean() -> None:
    original = {"a": arrays([1, 0], [1, 0]), "b": arrays([1, 0], [1, 0])}
    found = {"a": arrays([1, 0], [0, 1]), "b": arrays([0, 1], [0, 1])}
    assert compared(Agreement(), original, found).value == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (arrays([0.2, 0.8], [1.0, 0.0]), Kl()),
        (arrays([[0.2, 0.8], [0.5, 0.5005]]), Kl()),
        (arrays([0.3], [1.0]), Kl()),
        (arrays(0.3, 0.0), Kl()),
        (arrays([0.3], [1.1]), RelativeError()),
        (arrays([0.2, 0.8], [0.5, 0.6]), RelativeError()),
        (arrays([1.2, -0.2]), RelativeError()),
        (arrays([0.2, np.nan]), RelativeError()),
    ],
)
def test_the_default_follows_from_the_answers(answers, expected: Metric) -> None:
    assert default_metric({"y": answers}) == expected
    mixed = {"y": answers, "z": arrays([3.0, 4.0])}
    assert default_metric(mixed) == RelativeError()
