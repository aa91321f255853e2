"""What runs on a node of a Ray cluster: an actor with an agent's process as its child."""

import fcntl
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import final
from urllib.parse import urlsplit

import ray

from search.agents.launchers.ray.messages import Cluster, Place
from search.linux import boot_id

_BOUND = "search.agents.launchers.bound"
_DEATHS = 3
"""How often an agent is started that something kills, before its place is given up."""
_PAUSE_SECONDS = 1.0
_LAST_WORDS = 400
_LOOPBACK = ("localhost", "127.", "::1")
_SHARED = ("cache", "lanes")
"""Folders that all agents of a node have together: what one downloaded, the other finds, and while
one measures, the other stands still."""


@final
class AgentHost:
    """Runs one agent on the node where Ray has placed this actor, with what Ray gave it.

    Args:
        cluster: a `Cluster`, and `place` a `Place`, as JSON, so that no object of ours is pickled
            between two machines.
        key: the agent's API key, which gets to it by its environment.
        home: the driver's own `loopback`.
    """

    def __init__(self, cluster: bytes, place: bytes, key: str | None, home: str) -> None:
        self._cluster = Cluster.model_validate_json(cluster)
        self._place = Place.model_validate_json(place)
        self._key = key
        self._home = home
        self._stopping = threading.Event()
        self._agent: subprocess.Popen[bytes] | None = None
        # Ray started this process, with whatever umask it has itself.
        os.umask(0o077)
        self._folder = self._cluster.scratch / f"agent-{self._place.name}"

    def run(self) -> str:
        """Run the agent to its end; why it ended, and an empty string when it was to."""
        url = self._cluster.url
        if is_loopback(url) and self._home != loopback():
            return (
                f"its agent would look for the API at {url}, which is the node itself: set "
                "REFLECTORY_URL to an address that nodes reach"
            )
        _forget_old(self._cluster.scratch)
        for name in _SHARED:
            (self._cluster.scratch / name).mkdir(parents=True, exist_ok=True)
        self._folder.mkdir()
        for name in _SHARED:
            (self._folder / name).symlink_to(Path("..") / name)
        try:
            return self._run()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def stop(self) -> None:
        """Have the agent store what runs, and leave; `run` returns then."""
        self._stopping.set()
        if self._agent is not None:
            self._agent.terminate()

    def _run(self) -> str:
        # One that was killed joins again as the same machine, and says so: Note [Sudden deaths].
        code = 0
        for _ in range(_DEATHS):
            if self._stopping.is_set():
                return ""
            self._agent = self._start()
            if self._stopping.is_set():
                self._agent.terminate()
            code = self._agent.wait()
            if code == 0 or self._stopping.is_set():
                return ""
            if code > 0:
                return f"its agent ended with code {code}: {self._last_words()}"
            time.sleep(_PAUSE_SECONDS)
        return f"its agent was killed {_DEATHS} times, by signal {-code} at last"

    def _start(self) -> "subprocess.Popen[bytes]":
        place = self._place
        options = ["--server", self._cluster.url, "--name", place.name]
        options += ["--workers", str(place.cpus), "--slots-per-gpu"]
        options += [str(self._cluster.slots_per_gpu), "--data-dir", str(self._folder)]
        parent = str(os.getpid())
        with (self._folder / "agent.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", "-m", _BOUND, parent, *self._cluster.command, *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._environment(),
                # Signals of Ray's own groups are not for the agent.
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        # Neither Ray's token nor settings of a server that runs on this node as well.
        ours = ("RAY_AUTH_", "REFLECTORY_")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
        environment |= self._cluster.environment
        if self._place.slot_memory is not None:
            environment["REFLECTORY_SLOT_MEMORY"] = str(self._place.slot_memory)
        if self._key is not None:
            environment["REFLECTORY_KEY"] = self._key
        # Ray counts GPUs by what was visible where it was started, and names them by that.
        gpus = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpus[: self._place.gpus])
        return environment

    def _last_words(self) -> str:
        said = (self._folder / "agent.log").read_text(errors="replace").strip().splitlines()
        return said[-1][:_LAST_WORDS] if said else "it said nothing"


def _forget_old(scratch: Path) -> None:
    """Remove what agents left behind that were killed together with their actor."""
    for folder in scratch.glob("agent-*"):
        try:
            with (folder / "worker.lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            # At work, or about to be.
            continue


def is_loopback(url: str) -> bool:
    """Whether a URL means the machine that speaks to it."""
    return (urlsplit(url).hostname or "").startswith(_LOOPBACK)


def loopback() -> str:
    """Name what `localhost` means to this process: the booted machine and its network namespace."""
    return f"{boot_id()} {os.readlink('/proc/self/ns/net')}"
