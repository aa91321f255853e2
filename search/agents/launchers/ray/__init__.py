"""Attempts on a Ray cluster, which provides slots and nothing more.

See Note [Ray in a process of its own] and Note [Reservations] and Note [Node agents] in
`search/README.md`.
"""

from search.agents.launchers.ray.messages import Cluster
from search.agents.launchers.ray.ray_executor import RayExecutor

__all__ = ["Cluster", "RayExecutor"]
