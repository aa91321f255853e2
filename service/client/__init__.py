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
"""

from service.client.datasets import DatasetCalls
from service.client.errors import ClientError, Damaged, Refused, Unfinished, Unreachable
from service.client.models import ModelCalls
from service.client.networks import NetworkCalls
from service.client.server import ServerCalls

__all__ = ["Client", "ClientError", "Damaged", "Refused", "Unfinished", "Unreachable"]


class Client(NetworkCalls, DatasetCalls, ModelCalls, ServerCalls):
    """Speaks to one server. Threads may share it; close it, or use it in a `with` statement."""
