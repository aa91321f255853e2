"""Words of the Penn Treebank: arXiv table 3."""

from typing import Any

from models.architectures import AnyArchitecture, Lstm, Rnn
from models.parametrizations import AnyFamily, Dense, HouseholderSvd
from models.spec import Signature
from search.documents.papers import PrintedValue, Source
from search.papers.cited import SPECTRAL
from search.papers.paper_table import Table
from search.papers.row import Recipe, Row, System
from search.tasks import Language
from search.training.trial_spec import TrainingSpec

_TRAINING = TrainingSpec(
    optimizer="sgd", learning_rate=0.1, decay=0.8, batch_size=128, clip_norm=None
)
_NOTE = (
    "The language model of words. Rate 0.1, times 0.8 each epoch; that the optimizer is plain "
    "gradient descent is our reading."
)
_DROPPED = (
    " A share of 0.2 is dropped of what enters a layer or the readout; the source says 80 % "
    "dropout, which in its code is what is kept."
)
_SIGNATURE = Signature(
    input_size=128,
    sequence_length=300,
    output_size=10_000,
    output_steps="every",
    vocabulary=10_000,
)
_EPOCHS, _WINDOWS = 40, 25
"""Windows of a pass over 929,589 words in 128 rows."""

_RECIPE = Recipe(training=_TRAINING, epochs=_EPOCHS, updates=_EPOCHS * _WINDOWS)


def _row(
    name: str,
    title: str,
    architecture: AnyArchitecture,
    family: AnyFamily,
    *,
    note: str = _NOTE,
    printed: tuple[float, float],
    counted: str,
    parameters: int,
) -> Row:
    train, test = printed
    return Row(
        key=name,
        system=System(
            name=name,
            title=title,
            paper=SPECTRAL,
            description=note,
            architecture=architecture,
            parametrization=family,
        ),
        task=Language(corpus="ptb", level="word", window=300),
        recipe=_RECIPE,
        source=Source(paper=SPECTRAL, table="table 3", row=title),
        claim=PrintedValue(
            metric="perplexity",
            direction="minimize",
            value=test,
            printed=f"{train} / {test} (train / test)",
        ),
        printed_parameters=counted,
        parameters=parameters,
        signature=_SIGNATURE,
        preset=True,
        erratum="Printed are the numbers of the recurrent matrices, in Ki.",
        deviation="The size of the embedding, the batch size and the epochs are not stated: 128, "
        "128 and 40 are ours.",
    )


_LAYERS: Any = {"layers": 2, "layer_dropout": 0.2}

PTB_WORDS = Table(
    name="ptb-words",
    title="Words of the Penn Treebank",
    about="Recurrent systems of one and two layers, in windows of 300 words, test perplexity.",
    rows=(
        _row(
            "rnn-128-words",
            "RNN of words, 128 units",
            Rnn(hidden_size=128),
            Dense(),
            printed=(68.1, 144.7),
            counted="16k",
            parameters=2_603_024,
        ),
        _row(
            "rnn-128-words-2",
            "RNN of words, 128 units, two layers",
            Rnn(hidden_size=128, **_LAYERS),
            Dense(),
            note=_NOTE + _DROPPED,
            printed=(62.6, 142.5),
            counted="32k",
            parameters=2_636_048,
        ),
        _row(
            "lstm-128-words",
            "LSTM of words, 128 units",
            Lstm(hidden_size=128),
            Dense(),
            printed=(69.1, 130.7),
            counted="64k",
            parameters=2_701_840,
        ),
        _row(
            "lstm-128-words-2",
            "LSTM of words, 128 units, two layers",
            Lstm(hidden_size=128, **_LAYERS),
            Dense(),
            note=_NOTE + _DROPPED,
            printed=(26.1, 122.7),
            counted="128k",
            parameters=2_833_680,
        ),
        _row(
            "spectral-rnn-512-32-words",
            "Spectral-RNN, 512 units, 32 + 32 reflectors",
            Rnn(hidden_size=512),
            HouseholderSvd(m1=32, m2=32, r=0.01),
            note=f"{_NOTE} Counts tell that there are 32 reflectors a side.",
            printed=(65.4, 130.2),
            counted="31k",
            parameters=6_508_848,
        ),
        _row(
            "spectral-rnn-512-32",
            "Spectral-RNN, 512 units, 32 + 32 reflectors, two layers",
            Rnn(hidden_size=512, **_LAYERS),
            HouseholderSvd(m1=32, m2=32, r=0.01),
            note=f"{_NOTE}{_DROPPED} Counts tell that there are 32 reflectors a side.",
            printed=(36.0, 121.3),
            counted="63k",
            parameters=6_804_304,
        ),
    ),
)
