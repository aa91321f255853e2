"""The search over the layers of a network of others: prices first, then mutations of the front."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from optuna.samplers import BaseSampler, RandomSampler

from search.samplers.sampler import Proposal, Sampler, SamplerContext, Space
from search.spaces import NetworkSpace


class ByLayer(Sampler):
    """One choice for each layer: by price at first, then mutations of the front.

    Predicted losses (a layer's sensitivity times the error of its fit) rank the choices. The first
    trials are the best predicted fronts at rising prices of bytes and of multiply-adds; later ones
    change one to three layers of a trial on the front, drawn by predicted gain. For
    `model_outputs` alone.
    """

    proposes: ClassVar[bool] = True

    kind: Literal["by_layer"] = "by_layer"

    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:  # noqa: ARG002
        """Nothing is drawn by Optuna: configurations are proposed as wholes."""
        return RandomSampler(seed=seed)

    def propose(self, study: SamplerContext, number: int, /) -> Proposal:
        """What the layers' offers and the study's past lead to."""
        space = study.space
        assert isinstance(space, NetworkSpace)
        return space.proposal(number, study.past().trials)

    def fault(self, space: Space, _objectives: Sequence[str], /) -> str | None:
        """Spaces of models that are trained have no layers to choose for."""
        if isinstance(space, NetworkSpace):
            return None
        return "by_layer searches the layers of an uploaded network: for the task model_outputs"
