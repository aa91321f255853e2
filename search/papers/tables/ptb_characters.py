"""Characters of the Penn Treebank: table 2 of the low-rank paper."""

import math
from typing import Any

from models.architectures import Gru, Lstm
from models.parametrizations import AnyFamily, Dense, LowRankDiagonal
from models.spec import Signature
from search.documents.papers import PrintedValue, Source
from search.papers.cited import PASSTHROUGH
from search.papers.paper_table import Table
from search.papers.row import Recipe, Row, System, by_updates
from search.tasks import Language
from search.training.trial_spec import TrainingSpec

_SENTENCES = Language(corpus="ptb", unknown="spare", batching="sentences")
_STREAM = Language(corpus="ptb", unknown="symbol")
_NOTE = (
    "The sizes and training of the language model of characters: Adam at 1e-3, 32 samples a step, "
    "gradients' norm at most 1, until ten validations of 5,000 updates each bring no gain."
)
_GRU = Gru(hidden_size=1000, reset="after", learned_initial_state=False)
_DROPOUTS: dict[str, Any] = {
    "input_dropout": 0.1,
    "recurrent_dropout": 0.5,
    "readout_dropout": 0.5,
}
_TIED: dict[str, Any] = {"dropout_masks": "tied", **_DROPOUTS}
_LSTM: dict[str, Any] = {
    "start": 0.04,
    "learned_initial_state": False,
    "symbol_dropout": 0.3,
    "recurrent_dropout": 0.3,
    "readout_dropout": 0.5,
}
_DROPOUT_NOTE = "Dropout of 0.1 of inputs, and 0.5 of states and outputs. "
_GRAVES_NOTE = (
    "The language model of characters after Graves: Adam at 2e-4, weight decay 1e-7, 20 samples a "
    "step, nothing clipped, dropout 0.3 of inputs and states and 0.5 of outputs. Everything "
    "starts from U(±0.04), and inputs are dropped by character."
)
_RECIPE = by_updates(
    TrainingSpec(learning_rate=1e-3, batch_size=32, clip_norm=1.0, nan_recovery=0.01, patience=10),
    updates=500_000,
    each=5_000,
)
_GRAVES_TRAINING = TrainingSpec(
    learning_rate=2e-4, batch_size=20, weight_decay=1e-7, clip_norm=None
)
_GRAVES_EPOCHS, _WINDOWS = 55, 7_168
"""Windows of a pass over 5,017,482 characters in 20 rows."""

_GRAVES_RECIPE = Recipe(
    training=_GRAVES_TRAINING, epochs=_GRAVES_EPOCHS, updates=_GRAVES_EPOCHS * _WINDOWS
)


def _signature(symbols: int, steps: int) -> Signature:
    return Signature(
        input_size=symbols, sequence_length=steps, output_size=symbols, output_steps="every"
    )


def _claim(perplexity: float) -> PrintedValue:
    return PrintedValue(
        metric="bits_per_character",
        direction="minimize",
        value=round(math.log2(perplexity), 4),
        printed=f"{perplexity:.2f} (perplexity of a character)",
    )


def _gru(
    name: str,
    title: str,
    about: str,
    family: AnyFamily,
    *,
    size: int = 1000,
    dropouts: dict[str, Any] | None = None,
    perplexity: float,
    printed: str,
    parameters: int,
    erratum: str | None = None,
) -> Row:
    return Row(
        key=name,
        system=System(
            name=name,
            title=title,
            paper=PASSTHROUGH,
            description=f"{about}{_NOTE}",
            architecture=_GRU.model_copy(update={"hidden_size": size, **(dropouts or {})}),
            parametrization=family,
        ),
        task=_SENTENCES,
        recipe=_RECIPE,
        source=Source(paper=PASSTHROUGH, table="table 2", row=title),
        claim=_claim(perplexity),
        printed_parameters=printed,
        parameters=parameters,
        signature=_signature(51, 100),
        preset=True,
        erratum=erratum,
        deviation="The source averages perplexities by sentence, here every character counts the "
        "same; 500,000 updates at most are ours.",
    )


def _lstm(
    name: str,
    title: str,
    about: str,
    size: int,
    family: AnyFamily,
    *,
    perplexity: float,
    printed: str,
    parameters: int,
    erratum: str | None = None,
) -> Row:
    return Row(
        key=name,
        system=System(
            name=name,
            title=title,
            paper=PASSTHROUGH,
            description=f"{about}{_GRAVES_NOTE}",
            architecture=Lstm(hidden_size=size, **_LSTM),
            parametrization=family,
        ),
        task=_STREAM,
        recipe=_GRAVES_RECIPE,
        source=Source(paper=PASSTHROUGH, table="table 2", row=title),
        claim=_claim(perplexity),
        printed_parameters=printed,
        parameters=parameters,
        signature=_signature(49, 35),
        preset=True,
        erratum=erratum,
    )


_LRD = "Low-rank matrices with a diagonal. "
_LRD_TIED = "Low-rank matrices with a diagonal, of which all gates share the reading factor R. "

PTB_CHARACTERS = Table(
    name="ptb-characters",
    title="Characters of the Penn Treebank",
    about="GRUs and LSTMs with full and low-rank matrices, test bits per character; the table "
    "prints 2 to that power.",
    rows=(
        _gru(
            "gru-1000-reset-after",
            "GRU, 1000 units, reset after the matrix",
            "The baseline of the language model, with full matrices and a first state of 0. ",
            Dense(),
            perplexity=2.96,
            printed="3.11M",
            parameters=3_207_051,
        ),
        _gru(
            "gru-1000-dropout",
            "GRU, 1000 units, reset after the matrix, with dropout",
            f"The baseline of the language model, with dropout. {_DROPOUT_NOTE}",
            Dense(),
            dropouts=_TIED,
            perplexity=2.92,
            printed="3.11M",
            parameters=3_207_051,
        ),
        _gru(
            "gru-3298-dropout",
            "GRU, 3298 units, reset after the matrix, with dropout",
            f"The large baseline of the language model. {_DROPOUT_NOTE}One mask of "
            "the state serves all gates; the source has two for three gates here. ",
            Dense(),
            size=3298,
            dropouts=_TIED,
            perplexity=2.77,
            printed="32.98M",
            parameters=33_313_149,
        ),
        _lstm(
            "lstm-1000-dropout",
            "LSTM, 1000 units, with dropout",
            "The baseline, with full matrices. ",
            1000,
            Dense(),
            perplexity=2.92,
            printed="4.25M",
            parameters=4_249_049,
        ),
        _gru(
            "lrd-gru-1000-64",
            "LRD-GRU, 1000 units, rank 64, reset after the matrix",
            _LRD,
            LowRankDiagonal(d=64),
            perplexity=2.92,
            printed="0.49M",
            parameters=594_051,
        ),
        _gru(
            "lrd-gru-3298-128-plain",
            "LRD-GRU, 3298 units, rank 128, reset after the matrix, without dropout",
            _LRD,
            LowRankDiagonal(d=128),
            size=3298,
            perplexity=2.95,
            printed="2.89M",
            parameters=3_225_495,
        ),
        _gru(
            "lrd-gru-3298-128",
            "LRD-GRU, 3298 units, rank 128, reset after the matrix",
            _LRD + _DROPOUT_NOTE,
            LowRankDiagonal(d=128),
            size=3298,
            dropouts=_DROPOUTS,
            perplexity=2.86,
            printed="2.89M",
            parameters=3_225_495,
        ),
        _gru(
            "lrd-gru-5459-64",
            "LRD-GRU, 5459 units, rank 64, reset after the matrix",
            _LRD + _DROPOUT_NOTE,
            LowRankDiagonal(d=64),
            size=5459,
            dropouts=_DROPOUTS,
            perplexity=2.82,
            printed="2.69M",
            parameters=3_242_697,
        ),
        _gru(
            "tied-lrd-gru-5459-64",
            "tied LRD-GRU, 5459 units, rank 64, reset after the matrix",
            _LRD_TIED + _DROPOUT_NOTE,
            LowRankDiagonal(d=64, tied=True),
            size=5459,
            dropouts=_TIED,
            perplexity=2.81,
            printed="1.99M",
            parameters=2_543_945,
        ),
        _gru(
            "tied-lrd-gru-1000-64",
            "tied LRD-GRU, 1000 units, rank 64, reset after the matrix",
            _LRD_TIED,
            LowRankDiagonal(d=64, tied=True),
            dropouts={"dropout_masks": "tied"},
            perplexity=2.90,
            printed="0.46M",
            parameters=466_051,
            erratum="0.46M parameters are printed; the table's own way of counting gives 0.36M.",
        ),
        _gru(
            "tied-lrd-gru-4480-128",
            "tied LRD-GRU, 4480 units, rank 128, reset after the matrix",
            _LRD_TIED + _DROPOUT_NOTE,
            LowRankDiagonal(d=128, tied=True),
            size=4480,
            dropouts=_TIED,
            perplexity=2.86,
            printed="2.78M",
            parameters=3_234_611,
        ),
        _gru(
            "tied-lrd-gru-6985-64",
            "tied LRD-GRU, 6985 units, rank 64, reset after the matrix",
            _LRD_TIED + _DROPOUT_NOTE,
            LowRankDiagonal(d=64, tied=True),
            size=6985,
            dropouts=_TIED,
            perplexity=2.76,
            printed="2.54M",
            parameters=3_255_061,
        ),
        _lstm(
            "lrd-lstm-1740-300",
            "LRD-LSTM, 1740 units, rank 300",
            "It prints 4.25M parameters; these sizes have 4.62M. ",
            1740,
            LowRankDiagonal(d=300),
            perplexity=2.86,
            printed="4.25M",
            parameters=4_616_269,
            erratum="4.25M parameters are printed; 1740 units with rank 300 have 4.62M.",
        ),
    ),
)
