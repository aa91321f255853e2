"""Errors of the client.

ClientError
├── Refused      the server understood and said no: read its problem document and change the request
├── Unreachable  no server of ours answers there: start it, or correct the address
├── Unfinished   the server is still making what was asked for: ask again later
└── Damaged      bytes arrived that are not what the server names: download them again
"""

from service.http.problem_document import Problem


class ClientError(Exception):
    """Root of every error that the client raises on purpose."""


class Refused(ClientError):
    """The server refused the request; `problem` says what was wrong and what is allowed."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__("; ".join(problem.sentences()))


class Unreachable(ClientError):
    """No Reflectory server answers at this address."""


class Unfinished(ClientError):
    """What was asked for is still being made; it will be there later."""


class Damaged(ClientError):
    """A file's bytes do not have the digest that the server named; nothing was kept."""
