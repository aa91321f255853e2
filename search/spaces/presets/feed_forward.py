"""Deep networks of square layers, and highway networks, on MNIST as one vector."""

from functools import partial

from models.architectures import Highway, Mlp, Resnet
from models.parametrizations import Dense, HouseholderSvd, LowRank, LowRankDiagonal
from search.spaces.presets.preset import PASSTHROUGH, SPECTRAL, SPECTRAL_TRAINING, Preset
from search.tasks import Mnist
from search.training.trial_spec import TrainingSpec

_ROWS = Mnist(layout="rows")
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

_deep = partial(Preset, paper=SPECTRAL, training=SPECTRAL_TRAINING, task=_ROWS)
_highway = partial(
    Preset,
    paper=PASSTHROUGH,
    architecture=Highway(hidden_size=1024, layers=5, stack="batch_normalised"),
    training=_HIGHWAY_TRAINING,
    task=_ROWS,
)

FEED_FORWARD: tuple[Preset, ...] = (
    *(
        _deep(
            name=f"mlp-{size}-{depth}",
            title=f"MLP, {depth} layers of {size}",
            description=f"MNIST as one vector. {_DEEP_NOTE}.",
            architecture=Mlp(hidden_size=size, layers=depth),
            parametrization=Dense(),
        )
        for size, depth in ((128, 30), (32, 40))
    ),
    *(
        _deep(
            name=f"svd-mlp-{size}-{depth}",
            title=f"svdMLP, {depth} layers of {size}",
            description=f"MNIST as one vector, singular values within 0.01 of 1. {_DEEP_NOTE}, "
            "and there are 16 reflectors a side as there.",
            architecture=Mlp(hidden_size=size, layers=depth),
            parametrization=HouseholderSvd(m1=16, m2=16, r=0.01),
        )
        for size, depth in ((128, 30), (32, 40))
    ),
    *(
        _deep(
            name=f"resnet-{size}-{depth}",
            title=f"ResNet, {depth} layers of {size}",
            description=f"MNIST as one vector, blocks of two layers. {_DEEP_NOTE}.",
            architecture=Resnet(hidden_size=size, blocks=depth // 2),
            parametrization=Dense(),
        )
        for size, depth in ((128, 30), (32, 40))
    ),
    *(
        _deep(
            name=f"svd-resnet-{size}-{depth}",
            title=f"svdResNet, {depth} layers of {size}",
            description="MNIST as one vector, blocks of two layers, singular values around 0. "
            f"{_DEEP_NOTE}, there are 16 reflectors a side as there, and the radius 0.1 is "
            "ours.",
            architecture=Resnet(hidden_size=size, blocks=depth // 2),
            parametrization=HouseholderSvd(m1=16, m2=16, r=0.1, sigma_star=0.0),
        )
        for size, depth in ((128, 30), (32, 40))
    ),
    _highway(
        name="lr-highway",
        title="LR-Highway",
        description=f"Low-rank matrices. {_HIGHWAY_NOTE}",
        parametrization=LowRank(d=256),
    ),
    _highway(
        name="lrd-highway",
        title="LRD-Highway",
        description=f"Low-rank matrices with a diagonal. {_HIGHWAY_NOTE}",
        parametrization=LowRankDiagonal(d=256),
    ),
)
