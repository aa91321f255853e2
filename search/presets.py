"""The named systems of the papers, as configurations that a study can begin with."""

from collections.abc import Mapping

from pydantic import Field

from models.architectures import (
    AnyArchitecture,
    Gru,
    Highway,
    Lstm,
    Mlp,
    Resnet,
    Rnn,
    Urnn,
)
from models.parametrizations import (
    AnyFamily,
    Dense,
    FactorizedSvd,
    Householder,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
    RotationSvd,
    UnitaryFft,
    UnitaryFull,
)
from models.spec import Spec
from search.tasks import AnyTask, Copy, CopyTail, Language, Mnist, Ucr
from search.trial import TrainingSpec


class Preset(Spec):
    """A system with the sizes and the training that its source gives it."""

    name: str
    title: str
    paper: str
    description: str = Field(
        description="what it is, where its numbers are from, and what differs from the source"
    )
    architecture: AnyArchitecture
    parametrization: AnyFamily
    training: TrainingSpec
    task: AnyTask = Field(
        description="the source's own task; where its data are licensed or the user's to get, the "
        "study begins when they are in the data folder"
    )


_SPECTRAL = (
    "Zhang, Lei, Dhillon: Stabilizing Gradients for Deep Neural Networks via Efficient SVD "
    "Parameterization (2018, arXiv:1803.09327)"
)
_PASSTHROUGH = "Miceli Barone: Low-rank passthrough neural networks (2016, arXiv:1603.03116)"
_DIZZY = (
    "Dorobantu, Stromhaug, Renteria: DizzyRNN: Reparameterizing Recurrent Neural Networks for "
    "Norm-Preserving Backpropagation (2016, arXiv:1612.04035)"
)
_IRNN = (
    "Le, Jaitly, Hinton: A Simple Way to Initialize Recurrent Networks of Rectified Linear Units "
    "(2015, arXiv:1504.00941)"
)
_ORNN = (
    "Mhammedi, Hellicar, Rahman, Bailey: Efficient Orthogonal Parametrisation of Recurrent Neural "
    "Networks Using Householder Reflections (ICML 2017, arXiv:1612.00188)"
)
_URNN = (
    "Arjovsky, Shah, Bengio: Unitary Evolution Recurrent Neural Networks (ICML 2016, "
    "arXiv:1511.06464)"
)
_FULL_URNN = (
    "Wisdom, Powers, Hershey, Le Roux, Atlas: Full-Capacity Unitary Recurrent Neural Networks "
    "(NIPS 2016, arXiv:1611.00035)"
)
_FACTORIZED = (
    "Vorontsov, Trabelsi, Kadoury, Pal: On orthogonality and learning recurrent networks with "
    "long term dependencies (ICML 2017, arXiv:1702.00071)"
)

_SERIES = Ucr(name="ArrowHead", legacy_labels=True)
_WORDS = Language(corpus="ptb", level="word", window=300)
_SENTENCES = Language(corpus="ptb", unknown="spare", batching="sentences")
_STREAM = Language(corpus="ptb", unknown="symbol")
_MEMORY = Copy(lag=500, train_samples=100_000, test_samples=10_000)
_TAIL = CopyTail(train_samples=1_000, validation_samples=100, test_samples=100, fresh=True)
_ROWS = Mnist(layout="rows")
_PIXELS = Mnist(layout="pixels")
_PERMUTED = Mnist(layout="permuted")

_SPECTRAL_TRAINING = TrainingSpec(learning_rate=1e-3, decay=0.99, batch_size=128, clip_norm=None)
_SPECTRAL_NOTE = (
    "Adam at 1e-3, times 0.99 each epoch, 128 samples a step and nothing clipped, as in the "
    "released configuration; the paper searches these by a grid."
)
_ORNN_TRAINING = TrainingSpec(learning_rate=1e-3, batch_size=5, clip_norm=None)
_URNN_TRAINING = TrainingSpec(
    optimizer="rmsprop", learning_rate=1e-3, batch_size=20, clip_norm=None
)
_RETRAINED_TRAINING = TrainingSpec(
    optimizer="rmsprop", learning_rate=1e-4, batch_size=50, clip_norm=None
)
_FULL_TRAINING = _RETRAINED_TRAINING.model_copy(update={"learning_rate": 1e-3})
_FACTORIZED_TRAINING = TrainingSpec(
    optimizer="rmsprop", learning_rate=1e-4, weight_decay=1e-4, clip_norm=None
)
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
_HIGHWAY_TRAINING = TrainingSpec(learning_rate=3e-3, batch_size=100, clip_norm=None)
_HIGHWAY_NOTE = (
    "1024 units, inner dimension 256, five layers, the batch-normalised stack with its dropout, "
    "Adam at 3e-3 with 100 samples a step. The source halves the rate after three epochs without "
    "gain, and trains a squared hinge loss with a penalty on the readout's norm; here the rate "
    "stays and the loss is the task's cross-entropy."
)
_DEEP_NOTE = (
    "The source tells neither optimizer nor reflector counts of its feed-forward networks: "
    "training is that of its recurrent ones"
)
_DIZZY_TRAINING = TrainingSpec(
    optimizer="adagrad", learning_rate=1e-2, batch_size=100, clip_norm=None
)
_DIZZY_NOTE = (
    "Adagrad with 100 samples a step; the source takes the learning rate from the command line, "
    "1e-2 is chosen here. Its copy task judges the last ten steps alone."
)
_UCR_NOTE = (
    "The size of the comparison over UCR time series: 32 units, 16 reflectors a side (the text "
    "says 8, the printed parameter counts 16)."
)


def _recurrent() -> tuple[Preset, ...]:
    """The single-matrix networks and their rivals on pixel MNIST, and the sizes for UCR and PTB."""
    return (
        Preset(
            name="rnn-128",
            title="RNN, 128 units",
            paper=_SPECTRAL,
            description=f"The plain network with leaky relu, on MNIST pixel by pixel. "
            f"{_SPECTRAL_NOTE} The table prints 35k parameters; these sizes have 18,058.",
            architecture=Rnn(hidden_size=128),
            parametrization=Dense(),
            training=_SPECTRAL_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="irnn-128",
            title="IRNN, 128 units",
            paper=_IRNN,
            description="The plain network with relu, started at the identity. Zhang et al. call "
            f"so a network with an orthogonal start as well. {_SPECTRAL_NOTE}",
            architecture=Rnn(hidden_size=128, activation="relu"),
            parametrization=Dense(initialisation="identity"),
            training=_SPECTRAL_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="lstm-128",
            title="LSTM, 128 units",
            paper=_SPECTRAL,
            description=f"The baseline on MNIST pixel by pixel, forget gates started at 1. "
            f"{_SPECTRAL_NOTE} The table prints 64k parameters, those of the recurrent matrices.",
            architecture=Lstm(hidden_size=128),
            parametrization=Dense(),
            training=_SPECTRAL_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="lstm-128-peephole",
            title="LSTM with a dense peephole, 128 units",
            paper=_URNN,
            description="The LSTM of the uRNN's and of the low-rank paper's code, whose output "
            "gate sees the cell through a full matrix; RMSprop at 1e-3 with 20 samples a step, "
            "each component of a gradient cut to ±1.",
            architecture=Lstm(hidden_size=128, peephole=True),
            parametrization=Dense(),
            training=_URNN_TRAINING.model_copy(update={"clip_value": 1.0}),
            task=_PIXELS,
        ),
        Preset(
            name="ornn-128-16",
            title="oRNN, 128 units, 16 reflectors",
            paper=_ORNN,
            description="An orthogonal matrix of 16 reflectors, leaky relu of slope 0.1; Adam at "
            "1e-3 with 5 samples a step, as the source's code has it by default.",
            architecture=Rnn(hidden_size=128, leak=0.1),
            parametrization=Householder(m=16),
            training=_ORNN_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="ornn-256-32",
            title="oRNN, 256 units, 32 reflectors",
            paper=_ORNN,
            description="The size compared on MNIST pixel by pixel (11,034 parameters); Adam at "
            "1e-3 with 5 samples a step, as the source's code has it by default.",
            architecture=Rnn(hidden_size=256, leak=0.1),
            parametrization=Householder(m=32),
            training=_ORNN_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="spectral-rnn-128",
            title="Spectral-RNN, 128 units, 16 + 16 reflectors",
            paper=_SPECTRAL,
            description="Singular values within 0.01 of 1, leaky relu, on MNIST pixel by pixel "
            f"(5,658 parameters, printed as 6k). {_SPECTRAL_NOTE}",
            architecture=Rnn(hidden_size=128),
            parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
            training=_SPECTRAL_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="spectral-rnn-128-released",
            title="Spectral-RNN as in the released cell",
            paper=_SPECTRAL,
            description="As spectral-rnn-128 with relu for leaky relu and a first state of 0, "
            f"which is what the released cell does. {_SPECTRAL_NOTE}",
            architecture=Rnn(hidden_size=128, activation="relu", learned_initial_state=False),
            parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
            training=_SPECTRAL_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="svd-rnn-256",
            title="svdRNN, 256 units, 16 + 16 reflectors",
            paper=_SPECTRAL,
            description="The size of the first version of the paper on MNIST pixel by pixel; it "
            f"prints 13k parameters, these sizes have 11,546. {_SPECTRAL_NOTE}",
            architecture=Rnn(hidden_size=256),
            parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
            training=_SPECTRAL_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="urnn-512",
            title="uRNN, 512 complex units",
            paper=_URNN,
            description="A unitary matrix of phases, reflections and Fourier transforms, on MNIST "
            "pixel by pixel (16,394 parameters); RMSprop at 1e-3 with 20 samples a step, nothing "
            "clipped. The fixed permutation is another one than the source's.",
            architecture=Urnn(hidden_size=512),
            parametrization=UnitaryFft(),
            training=_URNN_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="rc-urnn-512",
            title="RC-uRNN, 512 complex units",
            paper=_FULL_URNN,
            description="The uRNN trained anew: RMSprop at 1e-4 with 50 samples a step. The source "
            "stops after five epochs without gain, 200 at most; here the study's budget does.",
            architecture=Urnn(hidden_size=512),
            parametrization=UnitaryFft(),
            training=_RETRAINED_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="fc-urnn-116",
            title="FC-uRNN, 116 complex units",
            paper=_FULL_URNN,
            description="Any unitary matrix, of n^2 numbers (16,366 parameters). The source takes "
            "geodesic steps at 1e-6 for the matrix and RMSprop at 1e-3 for the rest; here RMSprop "
            "at 1e-3 trains the matrix's skew-Hermitian coordinates too.",
            architecture=Urnn(hidden_size=116),
            parametrization=UnitaryFull(),
            training=_FULL_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="factorized-rnn-128",
            title="Factorized RNN, 128 units",
            paper=_FACTORIZED,
            description="W = U diag(s) V^T with margin 0, relu, RMSprop at 1e-4 with weight decay "
            "1e-4. The source takes geodesic steps at 1e-6 for U and V; here RMSprop trains their "
            "skew coordinates, and weight decay is apart from the gradient and draws U and V "
            "towards the identity too. The batch size is ours.",
            architecture=Rnn(hidden_size=128, activation="relu"),
            parametrization=FactorizedSvd(margin=0.0),
            training=_FACTORIZED_TRAINING,
            task=_PIXELS,
        ),
        Preset(
            name="rnn-32",
            title="RNN, 32 units",
            paper=_SPECTRAL,
            description=f"{_UCR_NOTE} {_SPECTRAL_NOTE}",
            architecture=Rnn(hidden_size=32),
            parametrization=Dense(),
            training=_SPECTRAL_TRAINING,
            task=_SERIES,
        ),
        Preset(
            name="lstm-32",
            title="LSTM, 32 units",
            paper=_SPECTRAL,
            description=f"{_UCR_NOTE} {_SPECTRAL_NOTE}",
            architecture=Lstm(hidden_size=32),
            parametrization=Dense(),
            training=_SPECTRAL_TRAINING,
            task=_SERIES,
        ),
        Preset(
            name="ornn-32-16",
            title="oRNN, 32 units, 16 reflectors",
            paper=_ORNN,
            description=f"{_UCR_NOTE} {_SPECTRAL_NOTE}",
            architecture=Rnn(hidden_size=32, leak=0.1),
            parametrization=Householder(m=16),
            training=_SPECTRAL_TRAINING,
            task=_SERIES,
        ),
        Preset(
            name="svd-rnn-32-16",
            title="svdRNN, 32 units, 16 + 16 reflectors",
            paper=_SPECTRAL,
            description=f"{_UCR_NOTE} {_SPECTRAL_NOTE}",
            architecture=Rnn(hidden_size=32),
            parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
            training=_SPECTRAL_TRAINING,
            task=_SERIES,
        ),
        Preset(
            name="spectral-rnn-512-32",
            title="Spectral-RNN, 512 units, 32 + 32 reflectors, two layers",
            paper=_SPECTRAL,
            description="The language model of words (counts tell that there are 32 reflectors a "
            "side). Rate 0.1, times 0.8 each epoch, and a share of 0.2 dropped, here before the "
            "readout alone; that the optimizer is plain gradient descent is our reading.",
            architecture=Rnn(hidden_size=512, layers=2, readout_dropout=0.2),
            parametrization=HouseholderSvd(m1=32, m2=32, r=0.01),
            training=_SPECTRAL_TRAINING.model_copy(
                update={"optimizer": "sgd", "learning_rate": 0.1, "decay": 0.8}
            ),
            task=_WORDS,
        ),
    )


def _feed_forward() -> tuple[Preset, ...]:
    """Deep networks of square layers, and highway networks, on MNIST as one vector."""
    return (
        *(
            Preset(
                name=f"mlp-{size}-{depth}",
                title=f"MLP, {depth} layers of {size}",
                paper=_SPECTRAL,
                description=f"MNIST as one vector. {_DEEP_NOTE}.",
                architecture=Mlp(hidden_size=size, layers=depth),
                parametrization=Dense(),
                training=_SPECTRAL_TRAINING,
                task=_ROWS,
            )
            for size, depth in ((128, 30), (32, 40))
        ),
        *(
            Preset(
                name=f"svd-mlp-{size}-{depth}",
                title=f"svdMLP, {depth} layers of {size}",
                paper=_SPECTRAL,
                description=f"MNIST as one vector, singular values within 0.01 of 1. {_DEEP_NOTE}, "
                "and there are 16 reflectors a side as there.",
                architecture=Mlp(hidden_size=size, layers=depth),
                parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
                training=_SPECTRAL_TRAINING,
                task=_ROWS,
            )
            for size, depth in ((128, 30), (32, 40))
        ),
        *(
            Preset(
                name=f"resnet-{size}-{depth}",
                title=f"ResNet, {depth} layers of {size}",
                paper=_SPECTRAL,
                description=f"MNIST as one vector, blocks of two layers. {_DEEP_NOTE}.",
                architecture=Resnet(hidden_size=size, blocks=depth // 2),
                parametrization=Dense(),
                training=_SPECTRAL_TRAINING,
                task=_ROWS,
            )
            for size, depth in ((128, 30), (32, 40))
        ),
        *(
            Preset(
                name=f"svd-resnet-{size}-{depth}",
                title=f"svdResNet, {depth} layers of {size}",
                paper=_SPECTRAL,
                description="MNIST as one vector, blocks of two layers, singular values around 0. "
                f"{_DEEP_NOTE}, there are 16 reflectors a side as there, and the radius 0.1 is "
                "ours.",
                architecture=Resnet(hidden_size=size, blocks=depth // 2),
                parametrization=HouseholderSvd(m1=16, m2=16, r=0.1, sigma_star=0.0),
                training=_SPECTRAL_TRAINING,
                task=_ROWS,
            )
            for size, depth in ((128, 30), (32, 40))
        ),
        Preset(
            name="lr-highway",
            title="LR-Highway",
            paper=_PASSTHROUGH,
            description=f"Low-rank matrices. {_HIGHWAY_NOTE}",
            architecture=Highway(hidden_size=1024, layers=5, stack="batch_normalised"),
            parametrization=LowRank(d=256),
            training=_HIGHWAY_TRAINING,
            task=_ROWS,
        ),
        Preset(
            name="lrd-highway",
            title="LRD-Highway",
            paper=_PASSTHROUGH,
            description=f"Low-rank matrices with a diagonal. {_HIGHWAY_NOTE}",
            architecture=Highway(hidden_size=1024, layers=5, stack="batch_normalised"),
            parametrization=LowRankDiagonal(d=256),
            training=_HIGHWAY_TRAINING,
            task=_ROWS,
        ),
    )


def _gated() -> tuple[Preset, ...]:
    """GRU and LSTM with plain and with low-rank matrices."""
    return (
        Preset(
            name="gru-128",
            title="GRU, 128 units, reset before the matrix",
            paper=_PASSTHROUGH,
            description=f"The baseline, with full matrices. {_PERMUTED_NOTE}",
            architecture=Gru(hidden_size=128, carry_bias=5.0),
            parametrization=Dense(),
            training=_PERMUTED_TRAINING,
            task=_PERMUTED,
        ),
        Preset(
            name="gru-1000-reset-after",
            title="GRU, 1000 units, reset after the matrix",
            paper=_PASSTHROUGH,
            description="The baseline of the language model, with full matrices and a first state "
            f"of 0. {_CHARACTER_NOTE}",
            architecture=_CHARACTER_GRU,
            parametrization=Dense(),
            training=_CHARACTER_TRAINING,
            task=_SENTENCES,
        ),
        Preset(
            name="gru-3298-dropout",
            title="GRU, 3298 units, reset after the matrix, with dropout",
            paper=_PASSTHROUGH,
            description=f"The large baseline of the language model. {_DROPOUT_NOTE} One mask of "
            "the state serves all gates; the source has two for three gates here. "
            f"{_CHARACTER_NOTE}",
            architecture=_CHARACTER_GRU.model_copy(
                update={"hidden_size": 3298, "dropout_masks": "tied", **_CHARACTER_DROPOUTS}
            ),
            parametrization=Dense(),
            training=_CHARACTER_TRAINING,
            task=_SENTENCES,
        ),
        *(
            Preset(
                name=f"lr-gru-{size}-{rank}",
                title=f"LR-GRU, {size} units, rank {rank}",
                paper=_PASSTHROUGH,
                description=f"Low-rank matrices. {_PERMUTED_NOTE}",
                architecture=Gru(hidden_size=size, carry_bias=5.0),
                parametrization=LowRank(d=rank),
                training=_PERMUTED_TRAINING,
                task=_PERMUTED,
            )
            for size, rank in ((128, 24), (512, 4))
        ),
        *(
            Preset(
                name=f"lrd-gru-{size}-{rank}",
                title=f"LRD-GRU, {size} units, rank {rank}",
                paper=_PASSTHROUGH,
                description=f"Low-rank matrices with a diagonal. {_PERMUTED_NOTE}",
                architecture=Gru(hidden_size=size, carry_bias=5.0),
                parametrization=LowRankDiagonal(d=rank),
                training=_PERMUTED_TRAINING,
                task=_PERMUTED,
            )
            for size, rank in ((64, 24), (128, 24), (256, 24))
        ),
        Preset(
            name="lrd-gru-128-50",
            title="LRD-GRU, 128 units, rank 50",
            paper=_PASSTHROUGH,
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
            paper=_PASSTHROUGH,
            description="As lrd-gru-128-50, with rows of input matrices and of L kept as a length "
            "times a direction, and rows of R as a direction alone (A.2, of which no code was "
            f"released), which needs no recovery from NaN. {_MEMORY_NOTE}",
            architecture=Gru(hidden_size=128, carry_bias=4.0, input_weight_norm=True),
            parametrization=LowRankDiagonal(d=50, weight_norm=True),
            training=_MEMORY_TRAINING.model_copy(update={"nan_recovery": None}),
            task=_MEMORY,
        ),
        *(
            Preset(
                name=f"lrd-gru-{size}-{rank}",
                title=f"LRD-GRU, {size} units, rank {rank}, reset after the matrix",
                paper=_PASSTHROUGH,
                description=f"Low-rank matrices with a diagonal. {note}{_CHARACTER_NOTE}",
                architecture=_CHARACTER_GRU.model_copy(update={"hidden_size": size, **dropouts}),
                parametrization=LowRankDiagonal(d=rank),
                training=_CHARACTER_TRAINING,
                task=_SENTENCES,
            )
            for size, rank, note, dropouts in (
                (1000, 64, "", {}),
                (3298, 128, f"{_DROPOUT_NOTE} ", _CHARACTER_DROPOUTS),
                (5459, 64, f"{_DROPOUT_NOTE} ", _CHARACTER_DROPOUTS),
            )
        ),
        *(
            Preset(
                name=f"tied-lrd-gru-{size}-{rank}",
                title=f"tied LRD-GRU, {size} units, rank {rank}, reset after the matrix",
                paper=_PASSTHROUGH,
                description="Low-rank matrices with a diagonal, of which all gates share the "
                f"reading factor R. {note}{_CHARACTER_NOTE}{misprint}",
                architecture=_CHARACTER_GRU.model_copy(
                    update={"hidden_size": size, "dropout_masks": "tied", **dropouts}
                ),
                parametrization=LowRankDiagonal(d=rank, tied=True),
                training=_CHARACTER_TRAINING,
                task=_SENTENCES,
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
            paper=_PASSTHROUGH,
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
            training=TrainingSpec(
                learning_rate=2e-4, batch_size=20, weight_decay=1e-7, clip_norm=None
            ),
            task=_STREAM,
        ),
    )


def _rotations() -> tuple[Preset, ...]:
    """Networks of packed rotations, of the input matrices too where they are square."""
    return (
        Preset(
            name="dizzy-128-10",
            title="DizzyRNN, 128 units, 10 packed rotations",
            paper=_DIZZY,
            description=f"Rotations and absolute values, which keep every norm. {_DIZZY_NOTE}",
            architecture=Rnn(
                hidden_size=128,
                activation="abs",
                structured_inputs="square",
                input_initialisation="gaussian",
                learned_initial_state=False,
            ),
            parametrization=PackedRotations(count=10),
            training=_DIZZY_TRAINING,
            task=_TAIL,
        ),
        Preset(
            name="dizzy-svd-128",
            title="DizzyRNN-SVD, 128 units, 10 + 10 packed rotations",
            paper=_DIZZY,
            description="Singular values drawn towards 1 by a penalty, whose weight 1e-3 is ours. "
            f"{_DIZZY_NOTE}",
            architecture=Rnn(
                hidden_size=128,
                activation="abs",
                structured_inputs="square",
                input_initialisation="gaussian",
                learned_initial_state=False,
            ),
            parametrization=RotationSvd(count_u=10, count_v=10, penalty=1e-3),
            training=_DIZZY_TRAINING,
            task=_TAIL,
        ),
    )


PRESETS: Mapping[str, Preset] = {
    preset.name: preset for preset in (*_recurrent(), *_feed_forward(), *_gated(), *_rotations())
}
"""Every preset by its name."""
