"""Agents on the nodes of a Ray cluster, which provides room for them and nothing more.

See Note [Ray in a process of its own] and Note [Placed agents] in `search/README.md`.
"""

from search.agents.launchers.ray.launcher import check_installed, keep_agents_placed
from search.agents.launchers.ray.messages import Cluster, Demand

__all__ = ["Cluster", "Demand", "check_installed", "keep_agents_placed"]
