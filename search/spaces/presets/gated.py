"""GRU and LSTM with plain and with low-rank matrices."""

from functools import partial

from models.architectures import Gru, Lstm
from models.parametrizations import Dense, LowRank, LowRankDiagonal
from search.spaces.presets.preset import PASSTHROUGH, Preset
from search.tasks import Copy, Language, Mnist
from search.training.trial_spec import TrainingSpec

_SENTENCES = Language(corpus="ptb", unknown="spare", batching="sentences")
_STREAM = Language(corpus="ptb", unknown="symbol")
_MEMORY = Copy(lag=500, train_samples=100_000, test_samples=10_000)
_PERMUTED = Mnist(layout="permuted")
_PERMUTED_TRAINING = TrainingSpec(
    optimizer="rmsprop", learning_rate=5e-4, batch_size=20, clip_norm=1.0
)
_PERMUTED_NOTE = (
    "Permuted pixels, update gates started at 5, RMSprop at 5e-4 with 20 samples a step; the "
    "code clips the norm of some of the gradients to 1, here of all together, and permutes in "
    "another order."
)
_MEMORY_TRAINING = TrainingSpec(
    optimizer="rmsprop", learning_rate=1e-3, batch_size=20, clip_norm=1.0, nan_recovery=0.1
)
_MEMORY_NOTE = (
    "The memory task's sizes and training: update gates started at 4, RMSprop at 1e-3 with 20 "
    "samples a step, gradients' norm at most 1."
)
_CHARACTER_TRAINING = TrainingSpec(
    learning_rate=1e-3, batch_size=32, clip_norm=1.0, nan_recovery=0.01
)
_CHARACTER_NOTE = (
    "The sizes and training of the language model of characters: Adam at 1e-3, 32 samples a step, "
    "gradients' norm at most 1; the source stops by patience, which is left to the study."
)
_CHARACTER_GRU = Gru(hidden_size=1000, reset="after", learned_initial_state=False)
_CHARACTER_DROPOUTS = {"input_dropout": 0.1, "recurrent_dropout": 0.5, "readout_dropout": 0.5}
_DROPOUT_NOTE = "Dropout of 0.1 of inputs, and 0.5 of states and outputs."

_on_pixels = partial(Preset, paper=PASSTHROUGH, training=_PERMUTED_TRAINING, task=_PERMUTED)
_on_characters = partial(Preset, paper=PASSTHROUGH, training=_CHARACTER_TRAINING, task=_SENTENCES)

GATED: tuple[Preset, ...] = (
    _on_pixels(
        name="gru-128",
        title="GRU, 128 units, reset before the matrix",
        description=f"The baseline, with full matrices. {_PERMUTED_NOTE}",
        architecture=Gru(hidden_size=128, carry_bias=5.0),
        parametrization=Dense(),
    ),
    _on_characters(
        name="gru-1000-reset-after",
        title="GRU, 1000 units, reset after the matrix",
        description="The baseline of the language model, with full matrices and a first state "
        f"of 0. {_CHARACTER_NOTE}",
        architecture=_CHARACTER_GRU,
        parametrization=Dense(),
    ),
    _on_characters(
        name="gru-3298-dropout",
        title="GRU, 3298 units, reset after the matrix, with dropout",
        description=f"The large baseline of the language model. {_DROPOUT_NOTE} One mask of "
        "the state serves all gates; the source has two for three gates here. "
        f"{_CHARACTER_NOTE}",
        architecture=_CHARACTER_GRU.model_copy(
            update={"hidden_size": 3298, "dropout_masks": "tied", **_CHARACTER_DROPOUTS}
        ),
        parametrization=Dense(),
    ),
    *(
        _on_pixels(
            name=f"lr-gru-{size}-{rank}",
            title=f"LR-GRU, {size} units, rank {rank}",
            description=f"Low-rank matrices. {_PERMUTED_NOTE}",
            architecture=Gru(hidden_size=size, carry_bias=5.0),
            parametrization=LowRank(d=rank),
        )
        for size, rank in ((128, 24), (512, 4))
    ),
    *(
        _on_pixels(
            name=f"lrd-gru-{size}-{rank}",
            title=f"LRD-GRU, {size} units, rank {rank}",
            description=f"Low-rank matrices with a diagonal. {_PERMUTED_NOTE}",
            architecture=Gru(hidden_size=size, carry_bias=5.0),
            parametrization=LowRankDiagonal(d=rank),
        )
        for size, rank in ((64, 24), (128, 24), (256, 24))
    ),
    Preset(
        name="lrd-gru-128-50",
        title="LRD-GRU, 128 units, rank 50",
        paper=PASSTHROUGH,
        description=f"Low-rank matrices with a diagonal. {_MEMORY_NOTE} After a NaN the "
        "gradient is 0.1 times the parameters.",
        architecture=Gru(hidden_size=128, carry_bias=4.0),
        parametrization=LowRankDiagonal(d=50),
        training=_MEMORY_TRAINING,
        task=_MEMORY,
    ),
    Preset(
        name="lrd-gru-wn-128-50",
        title="LRD-GRU with weight normalisation and max-norm, 128 units, rank 50",
        paper=PASSTHROUGH,
        description="As lrd-gru-128-50, with rows of input matrices and of L kept as a length "
        "times a direction, and rows of R as a direction alone (A.2, of which no code was "
        f"released), which needs no recovery from NaN. {_MEMORY_NOTE}",
        architecture=Gru(hidden_size=128, carry_bias=4.0, input_weight_norm=True),
        parametrization=LowRankDiagonal(d=50, weight_norm=True),
        training=_MEMORY_TRAINING.model_copy(update={"nan_recovery": None}),
        task=_MEMORY,
    ),
    *(
        _on_characters(
            name=f"lrd-gru-{size}-{rank}",
            title=f"LRD-GRU, {size} units, rank {rank}, reset after the matrix",
            description=f"Low-rank matrices with a diagonal. {note}{_CHARACTER_NOTE}",
            architecture=_CHARACTER_GRU.model_copy(update={"hidden_size": size, **dropouts}),
            parametrization=LowRankDiagonal(d=rank),
        )
        for size, rank, note, dropouts in (
            (1000, 64, "", {}),
            (3298, 128, f"{_DROPOUT_NOTE} ", _CHARACTER_DROPOUTS),
            (5459, 64, f"{_DROPOUT_NOTE} ", _CHARACTER_DROPOUTS),
        )
    ),
    *(
        _on_characters(
            name=f"tied-lrd-gru-{size}-{rank}",
            title=f"tied LRD-GRU, {size} units, rank {rank}, reset after the matrix",
            description="Low-rank matrices with a diagonal, of which all gates share the "
            f"reading factor R. {note}{_CHARACTER_NOTE}{misprint}",
            architecture=_CHARACTER_GRU.model_copy(
                update={"hidden_size": size, "dropout_masks": "tied", **dropouts}
            ),
            parametrization=LowRankDiagonal(d=rank, tied=True),
        )
        for size, rank, note, dropouts, misprint in (
            (
                1000,
                64,
                "",
                {},
                " The table prints 0.46M parameters; its own way of counting gives 0.36M.",
            ),
            (4480, 128, f"{_DROPOUT_NOTE} ", _CHARACTER_DROPOUTS, ""),
            (5459, 64, f"{_DROPOUT_NOTE} ", _CHARACTER_DROPOUTS, ""),
            (6985, 64, f"{_DROPOUT_NOTE} ", _CHARACTER_DROPOUTS, ""),
        )
    ),
    Preset(
        name="lrd-lstm-1740-300",
        title="LRD-LSTM, 1740 units, rank 300",
        paper=PASSTHROUGH,
        description="The language model of characters after Graves: Adam at 2e-4, weight decay "
        "1e-7, 20 samples a step, nothing clipped, dropout 0.3 of inputs and states and 0.5 of "
        "outputs. The source starts everything from U(±0.04) and drops inputs by character. "
        "It prints 4.25M parameters; these sizes have "
        "4.62M.",
        architecture=Lstm(
            hidden_size=1740,
            learned_initial_state=False,
            input_dropout=0.3,
            recurrent_dropout=0.3,
            readout_dropout=0.5,
        ),
        parametrization=LowRankDiagonal(d=300),
        training=TrainingSpec(learning_rate=2e-4, batch_size=20, weight_decay=1e-7, clip_norm=None),
        task=_STREAM,
    ),
)
