"""Deep networks of square layers on MNIST: ICLR figure 3, arXiv figure 5."""

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import NamedTuple

from models.architectures import AnyArchitecture, Mlp, Resnet
from models.parametrizations import AnyFamily, Dense, HouseholderSvd
from search.documents.papers import Claim, Fails, Reaches, Source
from search.papers.cited import SPECTRAL
from search.papers.paper_table import Table
from search.papers.row import Row, System, by_passes
from search.papers.tables.pixel_mnist import MNIST_TEST, MNIST_TRAIN, SPECTRAL_TRAINING
from search.tasks import Mnist

_NOTE = (
    "The source tells neither optimizer nor reflector counts of its feed-forward networks: "
    "training is that of its recurrent ones"
)
_EPOCHS = 20
_LEARNED = 0.5
"""Accuracy of a network that learns; one that does not answers one class, 0.11."""


def _mlp(size: int, depth: int) -> AnyArchitecture:
    return Mlp(hidden_size=size, layers=depth)


def _resnet(size: int, depth: int) -> AnyArchitecture:
    return Resnet(hidden_size=size, blocks=depth // 2)


class Deep(NamedTuple):
    """A network of square layers, of any size and depth."""

    title: str
    description: str
    architecture: Callable[[int, int], AnyArchitecture]
    family: AnyFamily
    deepest: int | None
    """Layers beyond which the source says that it does not train."""


DEEP: Mapping[str, Deep] = {
    "mlp": Deep("MLP", f"MNIST as one vector. {_NOTE}.", _mlp, Dense(), 35),
    "svd-mlp": Deep(
        "svdMLP",
        f"MNIST as one vector, singular values within 0.01 of 1. {_NOTE}, "
        "and there are 16 reflectors a side as there.",
        _mlp,
        HouseholderSvd(m1=16, m2=16, r=0.01),
        None,
    ),
    "resnet": Deep(
        "ResNet", f"MNIST as one vector, blocks of two layers. {_NOTE}.", _resnet, Dense(), 70
    ),
    "svd-resnet": Deep(
        "svdResNet",
        "MNIST as one vector, blocks of two layers, singular values around 0. "
        f"{_NOTE}, there are 16 reflectors a side as there, and the radius 0.1 is ours.",
        _resnet,
        HouseholderSvd(m1=16, m2=16, r=0.1, sigma_star=0.0),
        None,
    ),
}
_HE: Mapping[str, Deep] = {
    "resnet-he": Deep(
        "ResNet from He's start",
        "As ResNet, with hidden matrices of variance 2 / n at first, where the others have 1 / n: "
        f"the source does not say how its networks start. {_NOTE}.",
        _resnet,
        Dense(initialisation="he_normal"),
        70,
    ),
}
_PRESETS = ((128, 30), (32, 40))
_SIZES = (*_PRESETS, *((128, depth) for depth in range(40, 101, 10)))
_HE_SIZES = ((128, 60), (128, 100))
_COUNTS = {
    "mlp-128-30": 597_130,
    "svd-mlp-128-30": 225_130,
    "resnet-128-30": 597_130,
    "svd-resnet-128-30": 225_130,
    "mlp-32-40": 67_690,
    "svd-mlp-32-40": 59_370,
    "resnet-32-40": 67_690,
    "svd-resnet-32-40": 59_370,
    "mlp-128-40": 762_250,
    "svd-mlp-128-40": 266_250,
    "resnet-128-40": 762_250,
    "svd-resnet-128-40": 266_250,
    "mlp-128-50": 927_370,
    "svd-mlp-128-50": 307_370,
    "resnet-128-50": 927_370,
    "svd-resnet-128-50": 307_370,
    "mlp-128-60": 1_092_490,
    "svd-mlp-128-60": 348_490,
    "resnet-128-60": 1_092_490,
    "svd-resnet-128-60": 348_490,
    "mlp-128-70": 1_257_610,
    "svd-mlp-128-70": 389_610,
    "resnet-128-70": 1_257_610,
    "svd-resnet-128-70": 389_610,
    "mlp-128-80": 1_422_730,
    "svd-mlp-128-80": 430_730,
    "resnet-128-80": 1_422_730,
    "svd-resnet-128-80": 430_730,
    "mlp-128-90": 1_587_850,
    "svd-mlp-128-90": 471_850,
    "resnet-128-90": 1_587_850,
    "svd-resnet-128-90": 471_850,
    "mlp-128-100": 1_752_970,
    "svd-mlp-128-100": 512_970,
    "resnet-128-100": 1_752_970,
    "svd-resnet-128-100": 512_970,
    "resnet-he-128-60": 1_092_490,
    "resnet-he-128-100": 1_752_970,
}


def _claim(deep: Deep, depth: int, updates: int) -> Claim:
    fails = deep.deepest is not None and depth > deep.deepest
    claimed = Fails if fails else Reaches
    return claimed(metric="accuracy", direction="maximize", value=_LEARNED, updates=updates)


def _rows() -> Iterator[Row]:
    recipe = by_passes(SPECTRAL_TRAINING, samples=MNIST_TRAIN, epochs=_EPOCHS)
    for systems, sizes in ((DEEP, _SIZES), (_HE, _HE_SIZES)):
        for (size, depth), (kind, deep) in product(sizes, systems.items()):
            system = System(
                name=f"{kind}-{size}-{depth}",
                title=f"{deep.title}, {depth} layers of {size}",
                paper=SPECTRAL,
                description=deep.description,
                architecture=deep.architecture(size, depth),
                parametrization=deep.family,
            )
            yield Row(
                key=f"L={depth}/{system.name}",
                system=system,
                task=Mnist(layout="rows"),
                recipe=recipe,
                source=Source(
                    paper=SPECTRAL,
                    table="figure 5 (ICLR: figure 3)",
                    row=f"{deep.title}, n = {size}, L = {depth}",
                ),
                claim=_claim(deep, depth, recipe.updates),
                test_samples=MNIST_TEST,
                parameters=_COUNTS[system.name],
                preset=(size, depth) in _PRESETS,
                deviation="The source does not say how it is trained; 20 epochs are ours.",
            )


DEPTH = Table(
    name="depth",
    title="Deep networks on MNIST",
    about="Plain and residual networks of square layers, test accuracy. The papers claim that the "
    "MLP does not train beyond 35 layers and the ResNet not beyond 70, and that those with bounded "
    f"singular values do; to train is to reach {_LEARNED} here.",
    rows=tuple(_rows()),
)
