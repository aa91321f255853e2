"""The server itself."""

from service.answers.base import Answer


class Health(Answer):
    """How the server is."""

    status: str
