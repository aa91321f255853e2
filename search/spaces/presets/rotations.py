"""Networks of packed rotations, of the input matrices too where they are square."""

from functools import partial

from models.architectures import Rnn
from models.parametrizations import PackedRotations, RotationSvd
from search.spaces.presets.preset import Preset
from search.tasks import CopyTail
from search.training.trial_spec import TrainingSpec

_DIZZY = (
    "Dorobantu, Stromhaug, Renteria: DizzyRNN: Reparameterizing Recurrent Neural Networks for "
    "Norm-Preserving Backpropagation (2016, arXiv:1612.04035)"
)
_TAIL = CopyTail(train_samples=1_000, validation_samples=100, test_samples=100, fresh=True)
_DIZZY_TRAINING = TrainingSpec(
    optimizer="adagrad", learning_rate=1e-2, batch_size=100, clip_norm=None
)
_DIZZY_NOTE = (
    "Adagrad with 100 samples a step; the source takes the learning rate from the command line, "
    "1e-2 is chosen here. Its copy task judges the last ten steps alone."
)

_dizzy = partial(
    Preset,
    paper=_DIZZY,
    architecture=Rnn(
        hidden_size=128,
        activation="abs",
        structured_inputs="square",
        input_initialisation="gaussian",
        learned_initial_state=False,
    ),
    training=_DIZZY_TRAINING,
    task=_TAIL,
)

ROTATIONS: tuple[Preset, ...] = (
    _dizzy(
        name="dizzy-128-10",
        title="DizzyRNN, 128 units, 10 packed rotations",
        description=f"Rotations and absolute values, which keep every norm. {_DIZZY_NOTE}",
        parametrization=PackedRotations(count=10),
    ),
    _dizzy(
        name="dizzy-svd-128",
        title="DizzyRNN-SVD, 128 units, 10 + 10 packed rotations",
        description="Singular values drawn towards 1 by a penalty, whose weight 1e-3 is ours. "
        f"{_DIZZY_NOTE}",
        parametrization=RotationSvd(count_u=10, count_v=10, penalty=1e-3),
    ),
)
