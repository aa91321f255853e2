"""The space of a study's document."""

from collections.abc import Callable

from search.graphs.model_outputs import ModelOutputs
from search.graphs.offered_layers import OfferedLayers
from search.spaces import AnySpace, NetworkSpace, SearchSpace
from search.studies.spec import StudySpec


def space_of(
    spec: StudySpec, *, offered: Callable[[], OfferedLayers | None] = lambda: None
) -> AnySpace:
    """The space that a study searches; its task has to be resolved.

    `offered` gives what preparing it found of a network's layers.

    Raises:
        SpecRefused: the document names something unknown, empty or impossible.
    """
    if isinstance(spec.task, ModelOutputs):
        return NetworkSpace(
            spec.task,
            costs=spec.network_costs,
            seed=spec.seed,
            limits=spec.limits,
            offered=offered,
        )
    return SearchSpace(spec)
