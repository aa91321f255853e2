"""Attempts on a Ray cluster, which provides slots and nothing more.

Note [Ray in a process of its own]
A driver of Ray 2.60 whose head is gone stands still in whatever it calls, time limits ignored, and
after 60 s its process is ended from within (both measured). So the coordinator never imports Ray:
`bridge` is a process of ours that does, `session` starts and watches it, and `executor` makes it
look like any other executor. A bridge that falls silent is killed, what ran is told as lost, and
another bridge connects when a head is there again.

Note [Seats]
What Ray gives away are resources, and what it is asked for them with is a placement group of one
bundle on one node: granted in 4 ms, bound to one GPU where it has part of a GPU, given back when
our driver ends however it ends. A slot whose group is granted is a seat that we hold. It is asked
for when the coordinator first reserves the slot, kept from one attempt to the next, and given back
when nothing has run on it for a while. The measuring lane is a seat too, of a resource that nodes
are started with.

Note [Keepers]
The processes of attempts are forked on their node by a keeper: an actor of ours without resources
that holds a `LocalExecutor`. A Ray task per attempt that starts the worker by itself costs 0.3 to
1 s for Ray's process and 2 s for torch's import; a fork costs 0.02 s, and its process group, its
exit code, its signal and its end with its parent are those of every attempt. With the keeper's end
the kernel ends the fork server and all attempts.
"""

from search.executors.ray.executor import RayExecutor
from search.executors.ray.pipe import Cluster

__all__ = ["Cluster", "RayExecutor"]
