"""All parameter counts that Zhang, Lei and Dhillon print for the UCR data sets."""

import math

import pytest

from models.architectures import AnyArchitecture, Lstm, Rnn
from models.parametrizations import AnyParametrization, Dense, Householder, HouseholderSvd
from tests.models.counting import spec_of, trainable

# Data set, inputs per step, steps, output width, classes, counts of RNN, LSTM, oRNN and svdRNN
# (ICLR 2018 submission, tables 3 and 4): n = 32, and 16 reflectors a side.
UCR = [
    ("50words", 10, 27, 50, 50, 3058, 7218, 2426, 2850),
    ("Adiac", 11, 16, 38, 37, 2694, 6950, 2062, 2486),
    ("ArrowHead", 1, 251, 3, 3, 1219, 4515, 587, 1011),
    ("Beef", 10, 47, 6, 5, 1606, 5766, 974, 1398),
    ("BeetleFly", 16, 32, 3, 2, 1699, 6435, 1067, 1491),
    ("CBF", 8, 16, 4, 3, 1476, 5444, 844, 1268),
    ("Coffee", 13, 22, 2, 2, 1570, 6018, 938, 1362),
    ("Cricket X", 15, 20, 13, 12, 1997, 6637, 1365, 1789),
    ("DistalPhalanxOutlineCorrect", 8, 10, 2, 2, 1410, 5378, 778, 1202),
    ("DistalPhalanxTW", 8, 10, 9, 6, 1641, 5609, 1009, 1433),
    ("ECG200", 8, 12, 2, 2, 1410, 5378, 778, 1202),
    ("ECG5000", 10, 14, 6, 5, 1606, 5766, 974, 1398),
    ("ECGFiveDays", 8, 17, 3, 2, 1443, 5411, 811, 1235),
    ("FaceAll", 1, 131, 15, 14, 1615, 4911, 983, 1407),
    ("FaceFour", 14, 25, 5, 4, 1701, 6245, 1069, 1493),
    ("FacesUCR", 1, 131, 15, 14, 1615, 4911, 983, 1407),
    ("Gun Point", 10, 15, 3, 2, 1507, 5667, 875, 1299),
    ("InsectWingbeatSound", 16, 16, 12, 11, 1996, 6732, 1364, 1788),
    ("ItalyPowerDemand", 4, 6, 3, 2, 1315, 4899, 683, 1107),
    ("Lighting2", 13, 49, 2, 2, 1570, 6018, 938, 1362),
    ("MiddlePhalanxOutlineCorrect", 8, 10, 2, 2, 1410, 5378, 778, 1202),
]

UCR_MODELS: dict[str, tuple[AnyArchitecture, AnyParametrization]] = {
    "RNN": (Rnn(hidden_size=32), Dense()),
    "LSTM": (Lstm(hidden_size=32), Dense()),
    "oRNN": (Rnn(hidden_size=32), Householder(m=16)),
    "svdRNN": (Rnn(hidden_size=32), HouseholderSvd(m1=16, m2=16)),
}


@pytest.mark.parametrize("model", UCR_MODELS)
@pytest.mark.parametrize("row", UCR, ids=[row[0] for row in UCR])
def test_ucr_cell(row: tuple[str, int, int, int, int, int, int, int, int], model: str) -> None:
    _, inputs, steps, outputs, _, *printed = row
    spec = spec_of(*UCR_MODELS[model], (inputs, steps, outputs))
    expected = printed[list(UCR_MODELS).index(model)]
    assert trainable(spec) == spec.parameter_count() == spec.paper_count() == expected


def test_eight_reflectors_as_in_the_text_give_no_cell_of_the_ucr_tables() -> None:
    """The text says m1 = m2 = 8; the counts of the tables are those of 16."""
    for _, inputs, steps, outputs, _, _, _, o_rnn, svd_rnn in UCR:
        sizes = (inputs, steps, outputs)
        svd = spec_of(Rnn(hidden_size=32), HouseholderSvd(m1=8, m2=8), sizes)
        assert svd.parameter_count() == svd_rnn - 2 * 164
        assert spec_of(Rnn(hidden_size=32), Householder(m=8), sizes).parameter_count() < o_rnn
    assert UCR[0][-1] - 2 * 164 == 2522


def test_outputs_of_the_ucr_tables_are_the_largest_label_plus_one() -> None:
    """Where labels start at 1 an output is never used; only 7 of 21 rows have the classes' number.

    50words, whose labels are 1 to 50, is the one row that is counted without it.
    """
    by_classes = [
        spec_of(Rnn(hidden_size=32), Dense(), (inputs, steps, classes)).parameter_count() == rnn
        for _, inputs, steps, _, classes, rnn, *_ in UCR
    ]
    assert by_classes == [outputs == classes for _, _, _, outputs, classes, *_ in UCR]
    assert sum(by_classes) == 7


def test_inputs_of_the_ucr_tables_are_the_largest_divisor_up_to_the_root() -> None:
    """The text has it the other way round (the depth at most the root), which gives depth 1."""
    for name, inputs, steps, *_ in UCR:
        length = inputs * steps
        divisors = [d for d in range(1, math.isqrt(length) + 1) if length % d == 0]
        assert (max(divisors) == inputs) is (name != "50words")
    assert 15 * 18 == 10 * 27
