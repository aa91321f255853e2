"""A part of the samples with the original's answers, and what of a file is held against them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from models.graphs.sessions import GraphSession
from search.graphs.metrics import Answers, Places
from search.graphs.network_data import NetworkSamples

ByOutput: TypeAlias = Mapping[str, Answers]
"""Answers to each sample, by the names of outputs."""


@dataclass(frozen=True, eq=False)
class AnsweredPart:
    """Samples at some places, and what the original answers."""

    places: Places
    original: ByOutput
    labels: Answers | None

    def some(self, which: Places) -> "AnsweredPart":
        """Those samples that stand at some places of this part."""
        chosen = [int(place) for place in which]
        return AnsweredPart(
            places=self.places[chosen],
            original={
                name: [one[place] for place in chosen] for name, one in self.original.items()
            },
            labels=None if self.labels is None else [self.labels[place] for place in chosen],
        )


def answers(
    session: GraphSession, samples: NetworkSamples, places: Places, outputs: Sequence[str]
) -> ByOutput:
    """What a file answers to the samples at these places.

    Raises:
        GraphRefused: onnxruntime does not run the file on a feed.
        SpecRefused: an output's first axis is not that of the samples.
    """
    runs = [session.run(feed, outputs) for feed in samples.feeds(places)]
    return {
        name: samples.by_sample(name, [run[name] for run in runs], len(places)) for name in outputs
    }


def joined_answers(parts: Sequence[ByOutput]) -> ByOutput:
    """Answers to the samples of several parts, in their order."""
    return {name: [one for part in parts for one in part[name]] for name in parts[0]}


def joined_parts(parts: Sequence[AnsweredPart]) -> AnsweredPart:
    """Several parts as one."""
    labels = [part.labels for part in parts]
    return AnsweredPart(
        places=np.concatenate([part.places for part in parts]),
        original=joined_answers([part.original for part in parts]),
        labels=None if None in labels else [one for part in labels for one in part or ()],
    )
