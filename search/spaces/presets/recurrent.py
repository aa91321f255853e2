"""Recurrent networks of a single matrix and their rivals, on pixels, UCR series and words."""

from functools import partial

from models.architectures import Lstm, Rnn, Urnn
from models.parametrizations import (
    Dense,
    FactorizedSvd,
    Householder,
    HouseholderSvd,
    UnitaryFft,
    UnitaryFull,
)
from search.spaces.presets.preset import SPECTRAL, SPECTRAL_TRAINING, Preset
from search.tasks import Language, Mnist, Ucr
from search.training.trial_spec import TrainingSpec

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
_PIXELS = Mnist(layout="pixels")
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
_UCR_NOTE = (
    "The size of the comparison over UCR time series: 32 units, 16 reflectors a side (the text "
    "says 8, the printed parameter counts 16)."
)

_on_pixels = partial(Preset, task=_PIXELS)
_spectral = partial(_on_pixels, paper=SPECTRAL, training=SPECTRAL_TRAINING)
_ornn = partial(_on_pixels, paper=_ORNN, training=_ORNN_TRAINING)
_on_series = partial(
    Preset,
    paper=SPECTRAL,
    description=f"{_UCR_NOTE} {_SPECTRAL_NOTE}",
    training=SPECTRAL_TRAINING,
    task=_SERIES,
)

RECURRENT: tuple[Preset, ...] = (
    _spectral(
        name="rnn-128",
        title="RNN, 128 units",
        description=f"The plain network with leaky relu, on MNIST pixel by pixel. "
        f"{_SPECTRAL_NOTE} The table prints 35k parameters; these sizes have 18,058.",
        architecture=Rnn(hidden_size=128),
        parametrization=Dense(),
    ),
    _spectral(
        name="irnn-128",
        title="IRNN, 128 units",
        paper=_IRNN,
        description="The plain network with relu, started at the identity. Zhang et al. call "
        f"so irnn-128-orthogonal as well. {_SPECTRAL_NOTE}",
        architecture=Rnn(hidden_size=128, activation="relu"),
        parametrization=Dense(initialisation="identity"),
    ),
    _spectral(
        name="irnn-128-orthogonal",
        title="IRNN, 128 units, orthogonal start",
        description="As irnn-128 with a random orthogonal matrix for the identity, and input "
        f"matrices started from N(0, 1/n), which Zhang et al. call IRNN too. {_SPECTRAL_NOTE}",
        architecture=Rnn(hidden_size=128, activation="relu", input_initialisation="gaussian"),
        parametrization=Dense(initialisation="orthogonal"),
    ),
    _spectral(
        name="lstm-128",
        title="LSTM, 128 units",
        description=f"The baseline on MNIST pixel by pixel, forget gates started at 1. "
        f"{_SPECTRAL_NOTE} The table prints 64k parameters, those of the recurrent matrices.",
        architecture=Lstm(hidden_size=128),
        parametrization=Dense(),
    ),
    _on_pixels(
        name="lstm-128-peephole",
        title="LSTM with a dense peephole, 128 units",
        paper=_URNN,
        description="The LSTM of the uRNN's and of the low-rank paper's code, whose output "
        "gate sees the cell through a full matrix; RMSprop at 1e-3 with 20 samples a step, "
        "each component of a gradient cut to ±1.",
        architecture=Lstm(hidden_size=128, peephole=True),
        parametrization=Dense(),
        training=_URNN_TRAINING.model_copy(update={"clip_value": 1.0}),
    ),
    _ornn(
        name="ornn-128-16",
        title="oRNN, 128 units, 16 reflectors",
        description="An orthogonal matrix of 16 reflectors, leaky relu of slope 0.1; Adam at "
        "1e-3 with 5 samples a step, as the source's code has it by default.",
        architecture=Rnn(hidden_size=128, leak=0.1),
        parametrization=Householder(m=16),
    ),
    _ornn(
        name="ornn-256-32",
        title="oRNN, 256 units, 32 reflectors",
        description="The size compared on MNIST pixel by pixel (11,034 parameters); Adam at "
        "1e-3 with 5 samples a step, as the source's code has it by default.",
        architecture=Rnn(hidden_size=256, leak=0.1),
        parametrization=Householder(m=32),
    ),
    _spectral(
        name="spectral-rnn-128",
        title="Spectral-RNN, 128 units, 16 + 16 reflectors",
        description="Singular values within 0.01 of 1, leaky relu, on MNIST pixel by pixel "
        f"(5,658 parameters, printed as 6k). {_SPECTRAL_NOTE}",
        architecture=Rnn(hidden_size=128),
        parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
    ),
    _spectral(
        name="spectral-rnn-128-released",
        title="Spectral-RNN as in the released cell",
        description="As spectral-rnn-128 with relu for leaky relu and a first state of 0, "
        f"which is what the released cell does. {_SPECTRAL_NOTE}",
        architecture=Rnn(hidden_size=128, activation="relu", learned_initial_state=False),
        parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
    ),
    _spectral(
        name="svd-rnn-256",
        title="svdRNN, 256 units, 16 + 16 reflectors",
        description="The size of the first version of the paper on MNIST pixel by pixel; it "
        f"prints 13k parameters, these sizes have 11,546. {_SPECTRAL_NOTE}",
        architecture=Rnn(hidden_size=256),
        parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
    ),
    _on_pixels(
        name="urnn-512",
        title="uRNN, 512 complex units",
        paper=_URNN,
        description="A unitary matrix of phases, reflections and Fourier transforms, on MNIST "
        "pixel by pixel (16,394 parameters); RMSprop at 1e-3 with 20 samples a step, nothing "
        "clipped. The fixed permutation is another one than the source's.",
        architecture=Urnn(hidden_size=512),
        parametrization=UnitaryFft(),
        training=_URNN_TRAINING,
    ),
    _on_pixels(
        name="rc-urnn-512",
        title="RC-uRNN, 512 complex units",
        paper=_FULL_URNN,
        description="The uRNN trained anew: RMSprop at 1e-4 with 50 samples a step. The source "
        "stops after five epochs without gain, 200 at most; here the study's budget does.",
        architecture=Urnn(hidden_size=512),
        parametrization=UnitaryFft(),
        training=_RETRAINED_TRAINING,
    ),
    _on_pixels(
        name="fc-urnn-116",
        title="FC-uRNN, 116 complex units",
        paper=_FULL_URNN,
        description="Any unitary matrix, of n^2 numbers (16,366 parameters). The source takes "
        "geodesic steps at 1e-6 for the matrix and RMSprop at 1e-3 for the rest; here RMSprop "
        "at 1e-3 trains the matrix's skew-Hermitian coordinates too.",
        architecture=Urnn(hidden_size=116),
        parametrization=UnitaryFull(),
        training=_FULL_TRAINING,
    ),
    _on_pixels(
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
    ),
    _on_series(
        name="rnn-32",
        title="RNN, 32 units",
        architecture=Rnn(hidden_size=32),
        parametrization=Dense(),
    ),
    _on_series(
        name="lstm-32",
        title="LSTM, 32 units",
        architecture=Lstm(hidden_size=32),
        parametrization=Dense(),
    ),
    _on_series(
        name="ornn-32-16",
        title="oRNN, 32 units, 16 reflectors",
        paper=_ORNN,
        architecture=Rnn(hidden_size=32, leak=0.1),
        parametrization=Householder(m=16),
    ),
    _on_series(
        name="svd-rnn-32-16",
        title="svdRNN, 32 units, 16 + 16 reflectors",
        architecture=Rnn(hidden_size=32),
        parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
    ),
    Preset(
        name="spectral-rnn-512-32",
        title="Spectral-RNN, 512 units, 32 + 32 reflectors, two layers",
        paper=SPECTRAL,
        description="The language model of words (counts tell that there are 32 reflectors a "
        "side). Rate 0.1, times 0.8 each epoch, and a share of 0.2 dropped, here before the "
        "readout alone; that the optimizer is plain gradient descent is our reading.",
        architecture=Rnn(hidden_size=512, layers=2, readout_dropout=0.2),
        parametrization=HouseholderSvd(m1=32, m2=32, r=0.01),
        training=SPECTRAL_TRAINING.model_copy(
            update={"optimizer": "sgd", "learning_rate": 0.1, "decay": 0.8}
        ),
        task=_WORDS,
    ),
)
