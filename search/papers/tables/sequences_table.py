"""MNIST as sequences of different lengths: ICLR figure 2, arXiv figures 3 and 4."""

from collections.abc import Iterator
from typing import Literal

from models.architectures import Lstm, Rnn
from models.parametrizations import Dense, Householder, HouseholderSvd
from search.documents.papers import Claim, Reaches, Source
from search.papers.cited import ORNN, SPECTRAL
from search.papers.paper_table import Table
from search.papers.row import Row, System, by_passes
from search.papers.tables.pixel_mnist import (
    IRNN_128,
    LSTM_128,
    MNIST_TEST,
    MNIST_TRAIN,
    ORNN_128,
    RNN_128,
    SPECTRAL_128,
    SPECTRAL_NOTE,
    SPECTRAL_TRAINING,
)
from search.tasks import Mnist

_Layout = Literal["rows", "112x7", "392x2", "pixels", "permuted"]

_EPOCHS = 20
_LEARNED = 0.9
_NOTE = f"The size of the comparison over rows of MNIST, 20 units. {SPECTRAL_NOTE}"
_SMALL = (
    System(
        name="rnn-20",
        title="RNN, 20 units",
        paper=SPECTRAL,
        description=_NOTE,
        architecture=Rnn(hidden_size=20),
        parametrization=Dense(),
    ),
    System(
        name="irnn-20",
        title="IRNN, 20 units",
        paper=SPECTRAL,
        description=f"Started at the identity, with relu. {_NOTE}",
        architecture=Rnn(hidden_size=20, activation="relu"),
        parametrization=Dense(initialisation="identity"),
    ),
    System(
        name="lstm-20",
        title="LSTM, 20 units",
        paper=SPECTRAL,
        description=_NOTE,
        architecture=Lstm(hidden_size=20),
        parametrization=Dense(),
    ),
    System(
        name="ornn-20-16",
        title="oRNN, 20 units, 16 reflectors",
        paper=ORNN,
        description=_NOTE,
        architecture=Rnn(hidden_size=20, leak=0.1),
        parametrization=Householder(m=16),
    ),
    System(
        name="svd-rnn-20-16",
        title="svdRNN, 20 units, 16 + 16 reflectors",
        paper=SPECTRAL,
        description=_NOTE,
        architecture=Rnn(hidden_size=20),
        parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
    ),
)
_LARGE = (RNN_128, IRNN_128, LSTM_128, ORNN_128, SPECTRAL_128)
_OURS = ("svd-rnn-20-16", "spectral-rnn-128")

_COUNTS = {
    "rows": {
        "rnn-20": 1_210,
        "irnn-20": 1_210,
        "lstm-20": 4_170,
        "ornn-20-16": 1_010,
        "svd-rnn-20-16": 1_230,
    },
    "112x7": {
        "rnn-128": 18_826,
        "irnn-128": 18_826,
        "lstm-128": 71_178,
        "ornn-128-16": 4_370,
        "spectral-rnn-128": 6_426,
    },
    "392x2": {
        "rnn-128": 18_186,
        "irnn-128": 18_186,
        "lstm-128": 68_618,
        "ornn-128-16": 3_730,
        "spectral-rnn-128": 5_786,
    },
    "pixels": {
        "rnn-128": 18_058,
        "irnn-128": 18_058,
        "lstm-128": 68_106,
        "ornn-128-16": 3_602,
        "spectral-rnn-128": 5_658,
    },
    "permuted": {
        "rnn-128": 18_058,
        "irnn-128": 18_058,
        "lstm-128": 68_106,
        "ornn-128-16": 3_602,
        "spectral-rnn-128": 5_658,
    },
}
_LAYOUTS: dict[_Layout, tuple[System, ...]] = {
    "rows": _SMALL,
    "112x7": _LARGE,
    "392x2": _LARGE,
    "pixels": _LARGE,
    "permuted": _LARGE,
}


def _claim(system: System, updates: int) -> Claim | None:
    if system.name not in _OURS:
        return None
    return Reaches(metric="accuracy", direction="maximize", value=_LEARNED, updates=updates)


def _rows() -> Iterator[Row]:
    for layout, systems in _LAYOUTS.items():
        task = Mnist(layout=layout)
        recipe = by_passes(SPECTRAL_TRAINING, samples=MNIST_TRAIN, epochs=_EPOCHS)
        for system in systems:
            claim = _claim(system, recipe.updates)
            yield Row(
                key=f"{layout}/{system.name}",
                system=system,
                task=task,
                recipe=recipe,
                source=Source(
                    paper=SPECTRAL,
                    table="figures 3 and 4 (ICLR: figure 2)",
                    row=f"{system.title.partition(',')[0]}, T = {task.signature().sequence_length}",
                ),
                claim=claim,
                test_samples=MNIST_TEST,
                parameters=_COUNTS[layout][system.name],
                preset=layout == "rows",
                deviation="The figures tell neither epochs nor training: 20 epochs are ours.",
                unreachable=None if claim else "The figures are curves, of which none is a claim.",
            )


SEQUENCES = Table(
    name="sequences",
    title="MNIST as sequences of 28 to 784 steps",
    about="Five recurrent systems by the length of the sequence, test accuracy. The figures claim "
    "that the Spectral-RNN is the best throughout, that gradients of the RNN vanish, and that "
    f"those of the LSTM explode; here the Spectral-RNN is to reach {_LEARNED}.",
    rows=tuple(_rows()),
)
