"""Reflectory from Python: submit a study, wait for it, read its front, download its models.

    from reflectory import Client

    with Client("http://127.0.0.1:8080") as client:
        study = client.submit({"task": {"kind": "digits"}})
        study.wait(progress=True)
        study.best(max_quality_loss=0.01).download("small")

A fault on the way is met by asking again, wherever that is safe; what still fails raises one of the
errors of `service.client.errors`. Nothing heavy is imported: a script that only asks starts at
once.

`AsyncClient` has the same calls, to be awaited. Each call is described once, by the steps that it
takes; see `service.client.transport.steps`.
"""

from typing import TYPE_CHECKING, Any

from service.client.collections import CollectionCalls
from service.client.connection import Connection
from service.client.datasets import DatasetCalls
from service.client.errors import (
    ClientError,
    Damaged,
    ExportFailed,
    ExtraMissing,
    NoSuchStudy,
    Refused,
    StudyFailed,
    Unfinished,
    Unreachable,
)
from service.client.handles.opening import open_as, submit_as
from service.client.handles.study import Study
from service.client.handles.trial import Trial
from service.client.models import ModelCalls
from service.client.networks import NetworkCalls
from service.client.server import ServerCalls

if TYPE_CHECKING:
    from service.client.asynchronous import AsyncClient

__all__ = [
    "AsyncClient",
    "Client",
    "ClientError",
    "Damaged",
    "ExportFailed",
    "ExtraMissing",
    "NoSuchStudy",
    "Refused",
    "Study",
    "StudyFailed",
    "Trial",
    "Unfinished",
    "Unreachable",
]


class Client(NetworkCalls, CollectionCalls, DatasetCalls, ModelCalls, ServerCalls, Connection):
    """Speaks to one server. Threads may share it; close it, or use it in a `with` statement."""

    submit = submit_as(Study)
    open = open_as(Study)


def __getattr__(name: str) -> Any:
    """Load `AsyncClient` when it is asked for: event loops are a good part of a start.

    Raises:
        AttributeError: there is no such name.
    """
    if name != "AsyncClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from service.client.asynchronous import AsyncClient

    return AsyncClient
