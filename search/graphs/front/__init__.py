"""Which picks to measure next: by prices at first, then mutations of what is on the front."""

from search.graphs.front.proposals import Proposals

__all__ = ["Proposals"]
