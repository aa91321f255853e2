"""Real Ray clusters on this machine, started as users do: `ray start`, with a token."""

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_PATIENCE_SECONDS = 1200.0
_SMALL_STORE = 100 << 20


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class RayNode:
    """The processes of one node."""

    def __init__(self, arguments: list[str], *, log: Path, environment: dict[str, str]) -> None:
        with log.open("ab") as output:
            begun = output.tell()
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.ray_node", *arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
            )
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while b"Ray runtime started" not in log.read_bytes()[begun:]:
            assert self.process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL to every process of the node."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(_PATIENCE_SECONDS)


class RayCluster:
    """A head with two CPUs, and further nodes; ends with `close`, or with this process."""

    def __init__(self, *, cpus: int = 2, token: bool = True) -> None:
        # Ray's sockets stand below it, and the names of sockets have to be short.
        self.folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self.token_file = self.folder / "token"
        self.token_file.write_text(secrets.token_hex(32))
        self.token_file.chmod(0o600)
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.scratch = self.folder / "scratch"
        self._cpus = cpus
        self._log = self.folder / "nodes.log"
        self.environment = {
            "RAY_AUTH_MODE": "token" if token else "disabled",
            "RAY_AUTH_TOKEN_PATH": str(self.token_file),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self.nodes: list[RayNode] = []
        self.start_head()

    def start_head(self, *, cpus: int | None = None) -> None:
        """Start the head; one that was killed comes back empty, at the same address."""
        head = ["--head", f"--port={self.port}", f"--temp-dir={self.folder / 't'}"]
        self.head = self._start([*head, "--include-dashboard=false"], cpus=cpus)

    def add_node(self, *, cpus: int = 1) -> RayNode:
        """Have another node join."""
        return self._start([f"--address={self.address}"], cpus=cpus)

    def close(self) -> None:
        for node in self.nodes:
            if node.process.poll() is None:
                node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> "RayCluster":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _start(self, arguments: list[str], *, cpus: int | None) -> RayNode:
        node = RayNode(
            [
                *arguments,
                "--node-ip-address=127.0.0.1",
                f"--num-cpus={self._cpus if cpus is None else cpus}",
                "--num-gpus=0",
                f"--object-store-memory={_SMALL_STORE}",
                "--min-worker-port=0",
                "--max-worker-port=0",
                "--disable-usage-stats",
            ],
            log=self._log,
            environment={**os.environ, **self.environment},
        )
        self.nodes.append(node)
        return node
