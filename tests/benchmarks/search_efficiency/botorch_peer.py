"""BoTorch's qLogNEHVI where it is installed: only the error is modelled, costs are known.

qLogNEHVI (Ament et al. 2023) with one Gaussian process for the error and, for every cost, a
deterministic model: exact parameters, throughput as measured or as predicted from what was
measured. `ModelListGP` takes no deterministic model, `ModelList` does.
"""

import importlib
import importlib.util
import warnings
from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from tests.benchmarks.search_efficiency.peers import STARTUP, Observed, PeerSpace

_SAMPLES = 32
"""Draws of the front that the acquisition is a mean over."""

_CANDIDATES = 500
"""Random rows that are ranked, and all that differ from the front's in one value."""

_FIT = {"maxiter": 75}
_AT_ONCE = 256


def is_installed() -> bool:
    """Whether the peer can take part."""
    return importlib.util.find_spec("botorch") is not None


class Botorch:
    """Proposals of one search; after random ones the largest acquisition among rows not seen."""

    def __init__(self, space: PeerSpace, seed: int) -> None:
        self._space, self._seed = space, seed
        self._random = np.random.default_rng(seed)

    def propose(self, observed: Sequence[Observed]) -> int:
        """Fit, and rank candidates."""
        seen = [each.row for each in observed]
        fresh = np.setdiff1d(np.arange(len(self._space.values)), seen)
        if len(fresh) == 0:
            fresh = np.arange(len(self._space.values))
        known = [each for each in observed if not each.is_running]
        if len(observed) < STARTUP or not any(each.is_finished for each in known):
            return int(self._random.choice(fresh))
        costs = self._space.known_costs(seen)
        rows = torch.from_numpy(np.hstack([self._space.features, costs]))
        candidates = self._candidates(fresh, known, costs)
        running = [each.row for each in observed if each.is_running]
        # Ties of samples and restarts of the fit are the only chance, and follow from the seed.
        torch.manual_seed(int(self._random.integers(2**31)))
        with warnings.catch_warnings():
            # It imports what torch deprecates, and warns where a fit ends early.
            warnings.simplefilter("ignore")
            best = _best(
                rows[[each.row for each in known]],
                torch.tensor([-each.error for each in known], dtype=torch.float64),
                rows[running] if running else None,
                rows[candidates],
                features=self._space.features.shape[1],
                reference=[-self._space.reference_error, *(-costs.max(axis=0) - 0.05)],
                seed=self._seed,
            )
        return int(candidates[best])

    def refuse(self) -> None:
        """Nothing: a row is proposed again only where none is left."""

    def _candidates(
        self, fresh: np.ndarray, known: Sequence[Observed], costs: np.ndarray
    ) -> np.ndarray:
        """Some random rows, and the neighbours of what no other evaluation dominates."""
        drawn = self._random.choice(fresh, min(_CANDIDATES, len(fresh)), replace=False)
        points = np.column_stack([[each.error for each in known], costs[[e.row for e in known]]])
        front = [
            each
            for each, point in zip(known, points, strict=True)
            if not ((points <= point).all(axis=1) & (points < point).any(axis=1)).any()
        ]
        near = [row for each in front for row in self._space.neighbours(each.row)]
        return np.intersect1d(np.union1d(drawn, near).astype(int), fresh)


def _best(
    rows: Tensor,
    values: Tensor,
    running: Tensor | None,
    candidates: Tensor,
    *,
    features: int,
    reference: Sequence[float],
    seed: int,
) -> int:
    """Index of the candidate with the largest acquisition; everything is maximised.

    Args:
        rows: `[n, D + C]` of the evaluations, features and costs.
        values: `[n]`, negated logarithms of errors.
        running: `[r, D + C]`.
        candidates: `[m, D + C]`.
        features: D.
        reference: `[1 + C]`.
        seed: of the samples.
    """
    botorch = cast(Any, importlib.import_module("botorch"))
    models = cast(Any, importlib.import_module("botorch.models"))
    costs = rows.shape[1] - features
    process = models.SingleTaskGP(
        rows,
        values[:, None],
        outcome_transform=_of("botorch.models.transforms.outcome", "Standardize")(1),
        input_transform=_of("botorch.models.transforms.input", "FilterFeatures")(
            torch.arange(features)
        ),
    )
    likelihood = _of("gpytorch.mlls", "ExactMarginalLogLikelihood")(process.likelihood, process)
    botorch.fit_gpytorch_mll(likelihood, optimizer_kwargs={"options": _FIT})
    known = _of("botorch.models.deterministic", "GenericDeterministicModel")(
        lambda x: -x[..., features:], num_outputs=costs
    )
    size = torch.Size([_SAMPLES])
    sampler = _of("botorch.sampling.list_sampler", "ListSampler")(
        _of("botorch.sampling.normal", "SobolQMCNormalSampler")(size, seed=seed),
        _of("botorch.sampling.index_sampler", "IndexSampler")(size),
    )
    acquisition = _of(
        "botorch.acquisition.multi_objective.logei", "qLogNoisyExpectedHypervolumeImprovement"
    )(
        model=_of("botorch.models.model", "ModelList")(process, known),
        ref_point=list(reference),
        X_baseline=rows,
        X_pending=running,
        sampler=sampler,
        prune_baseline=True,
        cache_root=False,
    )
    with torch.no_grad():
        found = [acquisition(some[:, None]) for some in candidates.split(_AT_ONCE)]
    return int(torch.cat(found).argmax())


def _of(module: str, name: str) -> Any:
    """A class of the peer's, which is not there for the type checker."""
    return getattr(importlib.import_module(module), name)
