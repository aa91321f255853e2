"""A client whose server is away at times, while a stream that it has opened goes on."""

from contextlib import ExitStack

import httpx2

from service.client import Client
from service.client.transport.steps import Send


class AwayClient(Client):
    """`away` counts the requests to come that reach no server; none is tried again by itself."""

    away = 0

    def __init__(self, server: str) -> None:
        super().__init__(server, patience=0)

    def _send(self, request: Send, _answers: ExitStack) -> httpx2.Response:
        if self.away > 0:
            self.away -= 1
            raise httpx2.ConnectError("nobody is there")
        return super()._send(request, _answers)
