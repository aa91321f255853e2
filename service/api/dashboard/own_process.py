"""What the API and the dashboard's process know of each other."""

from pathlib import Path

TENANT_HEADER = "X-Reflectory-Tenant"
"""For whom the API asks. Believed where only this user can open the socket that it comes by; those
of clients never pass."""


def running_mark(socket: Path) -> Path:
    """The file, beside the dashboard's socket, whose lock its process holds while it runs."""
    return socket.with_suffix(".running")
