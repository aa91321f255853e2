"""The client of an event loop."""

from service.client.collections import CollectionCalls
from service.client.datasets import DatasetCalls
from service.client.handles.opening import open_as, submit_as
from service.client.handles.study import AsyncStudy
from service.client.models import ModelCalls
from service.client.networks import NetworkCalls
from service.client.server import ServerCalls
from service.client.transport.awaited import AsyncConnection


class AsyncClient(
    NetworkCalls, CollectionCalls, DatasetCalls, ModelCalls, ServerCalls, AsyncConnection
):
    """Speaks to one server from an event loop; use it in an `async with` statement."""

    submit = submit_as(AsyncStudy)
    open = open_as(AsyncStudy)
