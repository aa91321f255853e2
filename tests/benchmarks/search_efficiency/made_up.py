"""A table of curves that nobody trained: what is larger ends higher, all rise at random rates."""

from pathlib import Path

import numpy as np
import torch

from tests.benchmarks.search_efficiency.spaces import DIGITS


def made_up(folder: Path) -> Path:
    """The file of such a table of the digits' space, written into a folder."""
    random = np.random.default_rng(0)
    sizes = np.array([each.hidden_size * (2 + each.level) for each in DIGITS.structures()])
    shape = (len(sizes), len(DIGITS.learning_rates), 2, 1)
    ends = 0.75 + 0.2 * (sizes / sizes.max()).reshape(-1, 1, 1, 1) + random.normal(0, 0.01, shape)
    rises = 1 - np.exp(-np.arange(1, DIGITS.epochs + 1) / random.uniform(2, 8, shape))
    path = folder / "made-up.npz"
    np.savez_compressed(
        path,
        correct=np.rint(ends * rises * DIGITS.validation_samples).astype(np.uint16),
        seeds=np.array([0, 1]),
        parameters=40 * sizes,
        multiply_adds=300 * sizes**1.2,
        epoch_seconds=random.uniform(0.01, 0.03, (2, len(sizes))),
        torch_version=np.array(torch.__version__),
    )
    return path
