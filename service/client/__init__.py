"""Reflectory from Python: submit a study, watch it, read its front, download its models.

    from service.client import Client

    with Client("http://127.0.0.1:8080") as client:
        study = client.submit({"task": {"kind": "digits"}})
        for event in client.watch(study.id):
            ...
        best = client.front(study.id).best()

A fault on the way is met by asking again, wherever that is safe; what still fails raises one of the
errors of `service.client.errors`. Nothing heavy is imported: a script that only asks starts at
once.

`AsyncClient` has the same calls, to be awaited. Each call is described once, by the steps that it
takes; see `service.client.transport.steps`.
"""

from service.client.collections import CollectionCalls
from service.client.connection import Connection
from service.client.datasets import DatasetCalls
from service.client.errors import ClientError, Damaged, Refused, Unfinished, Unreachable
from service.client.models import ModelCalls
from service.client.networks import NetworkCalls
from service.client.server import ServerCalls
from service.client.transport.awaited import AsyncConnection

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "Damaged",
    "Refused",
    "Unfinished",
    "Unreachable",
]


class Client(NetworkCalls, CollectionCalls, DatasetCalls, ModelCalls, ServerCalls, Connection):
    """Speaks to one server. Threads may share it; close it, or use it in a `with` statement."""


class AsyncClient(
    NetworkCalls, CollectionCalls, DatasetCalls, ModelCalls, ServerCalls, AsyncConnection
):
    """Speaks to one server from an event loop; use it in an `async with` statement."""
