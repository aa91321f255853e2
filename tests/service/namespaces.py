"""A network of its own for a process, with a cable that a test cuts, mends and makes slow."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest


class Namespace:
    """A network namespace with one cable to this machine."""

    def __init__(self, name: str, subnet: int) -> None:
        self.name = name
        self.here, self.there = f"{name}h", f"{name}t"
        self.address = f"10.213.{subnet}.1"
        """Of this machine, as the namespace reaches it."""
        _ip("netns", "add", name)
        _ip("link", "add", self.here, "type", "veth", "peer", "name", self.there, "netns", name)
        _ip("address", "add", f"{self.address}/24", "dev", self.here)
        _ip("link", "set", self.here, "up")
        self.ip("link", "set", "lo", "up")
        self.ip("address", "add", f"10.213.{subnet}.2/24", "dev", self.there)
        self.ip("link", "set", self.there, "up")

    def ip(self, *words: str) -> None:
        _ip("-n", self.name, *words)

    def command(self, *words: str) -> list[str]:
        """A command as it is run there; the process is the command's own."""
        return ["ip", "netns", "exec", self.name, *words]

    def cut(self) -> None:
        """Nothing comes through any more, and nobody is told."""
        _ip("link", "set", self.here, "down")

    def mend(self) -> None:
        _ip("link", "set", self.here, "up")

    def slow(self, *how: str) -> None:
        """Shape what goes either way, as `tc netem` says, or skip where the kernel cannot."""
        for device in (["tc"], ["tc", "-n", self.name]):
            interface = self.here if device == ["tc"] else self.there
            words = [*device, "qdisc", "replace", "dev", interface, "root", "netem", *how]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                pytest.skip(f"this kernel has no netem: {done.stderr.strip()}")

    def close(self) -> None:
        for words in (("link", "delete", self.here), ("netns", "delete", self.name)):
            with suppress(subprocess.CalledProcessError):
                _ip(*words)


@contextmanager
def namespace() -> Iterator[Namespace]:
    """A namespace, or a skip with the reason where none can be made."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("`ip` and `tc` (iproute2) are not installed")
    if os.geteuid() != 0:
        pytest.skip("network namespaces are made by root alone")
    made: Namespace | None = None
    try:
        made = Namespace(f"rf{os.getpid() % 100000}", os.getpid() % 250)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespace can be made here: {error.stderr.strip()}")
    try:
        yield made
    finally:
        made.close()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)
