"""A site from the wheel, as containers run it: as a user without rights, writing in two folders."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.deploy.files import ROOT, compose
from tests.deploy.test_image import values
from tests.service.running import wait_until

UID = 10001
SPEC = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["low_rank"],
    "space": {"hidden_size": 16},
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 2, "epochs": 2},
}


@pytest.fixture(scope="module")
def program() -> Iterator[Path]:
    """`reflectory` from a wheel that is built from what the Dockerfile copies, and nothing else."""
    with tempfile.TemporaryDirectory(prefix="reflectory-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        source = folder / "source"
        source.mkdir()
        for *copied, target in (value.split() for value in values("wheel", "COPY")):
            place = source / target
            place.parent.mkdir(exist_ok=True)
            subprocess.run(
                ["cp", "-r", *(str(ROOT / one) for one in copied), str(place)], check=True
            )
        build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder / "wheel")]
        subprocess.run([*build, str(source)], check=True, stdout=subprocess.DEVNULL)
        place = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(place)], check=True)
        (packages,) = place.glob("lib/python*/site-packages")
        # What we depend on comes from here, what we are from the wheel alone.
        (packages / "surroundings.pth").write_text(sysconfig.get_path("purelib"))
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        install += ["--disable-pip-version-check", "--prefix", str(place), "--ignore-installed"]
        wheels = [str(wheel) for wheel in (folder / "wheel").glob("*.whl")]
        subprocess.run([*install, *wheels], check=True)
        yield place / "bin" / "reflectory"


class Container:
    """A process as the image runs it: its user, its environment, /data and /tmp."""

    def __init__(self, program: Path, folder: Path, name: str, **environment: str) -> None:
        self._program = program
        self._data, self._tmp = folder / name / "data", folder / name / "tmp"
        for place in (self._data, self._tmp):
            place.mkdir(parents=True)
            _give(place)
        self.log = folder / f"{name}.log"
        self._environment = {
            "PATH": f"{program.parent}:/usr/bin:/bin",
            "HOME": str(self._data),
            "TMPDIR": str(self._tmp),
            "PYTHONDONTWRITEBYTECODE": "1",
            "REFLECTORY_DATA_DIR": str(self._data),
            "REFLECTORY_KERNELS": "torch",
            **environment,
        }

    def start(self, *words: str) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*_as_somebody(), str(self._program), *words],
                env=self._environment,
                cwd=self._data,
                stdout=subprocess.PIPE if "--json" in words else log,
                stderr=log,
            )

    def run(self, *words: str) -> dict[str, Any]:
        said, _ = self.start(*words, "--json").communicate(timeout=1200)
        assert said, self.log.read_text()
        return json.loads(said)


@pytest.mark.slow
def test_the_commands_of_the_compose_file_make_a_site_as_a_user_without_rights(
    program: Path,
) -> None:
    services = compose()["services"]
    with contextlib.ExitStack() as held:
        name = held.enter_context(tempfile.TemporaryDirectory(prefix="reflectory-site-"))
        folder = Path(name)
        folder.chmod(0o755)
        for shared in ("rows", "bytes", "backups"):
            (folder / shared).mkdir()
            _give(folder / shared)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        site = {
            "REFLECTORY_DATABASE_URL": f"sqlite:///{folder}/rows/reflectory.db",
            "REFLECTORY_OPTUNA_URL": f"sqlite:///{folder}/rows/optuna.db",
            "REFLECTORY_ARTIFACTS_URL": f"file://{folder}/bytes",
            "REFLECTORY_SECRET": "x" * 40,
            "REFLECTORY_LEASE_SECONDS": "10",
            "REFLECTORY_HOST": "0.0.0.0",
            "REFLECTORY_PORT": str(port),
            "REFLECTORY_URL": url,
            "REFLECTORY_WORKERS": services["coordinator-1"]["environment"]["REFLECTORY_WORKERS"],
        }
        before = _written_by_the_user()
        Container(program, folder, "migrate", **site).run(*services["migrate"]["command"])
        cli = Container(program, folder, "cli", **site)
        key = cli.run("keys", "create", "me", "--scope", "admin")["key"]
        work = cli.run("keys", "create", "machines", "--scope", "work")["key"]
        worker = Container(program, folder, "worker", REFLECTORY_KEY=work)
        processes: list[subprocess.Popen[bytes]] = []
        held.callback(_kill, processes)
        for name in ("api-1", "coordinator-1", "coordinator-2"):
            container = Container(program, folder, name, **site)
            processes.append(container.start(*services[name]["command"]))
        processes.append(worker.start("worker", "--server", url, "--workers", "1"))
        http = held.enter_context(
            httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=300)
        )
        wait_until(lambda: _status(http, "/readyz") == 200, what="a ready site", seconds=240)
        answer = http.post("/v1/studies", json=SPEC)
        assert answer.status_code == 202, answer.text
        study = f"/v1/studies/{answer.json()['id']}"
        wait_until(
            lambda: http.get(study).json()["state"] == "finished",
            what=f"the end of a study; logs are {[str(log) for log in folder.glob('*.log')]}",
            seconds=240,
        )
        assert http.get(f"{study}/front").json()["points"]
        assert cli.run("backup", str(folder / "backups" / "site"))["artifacts"] >= 2
        for process in reversed(processes):
            process.send_signal(signal.SIGTERM)
        # uvicorn ends in order and then by the signal that it was sent.
        assert {process.wait(600) for process in processes} <= {0, -signal.SIGTERM}
        if os.geteuid() == 0:
            assert _written_by_the_user() <= before, "something was written beside /data and /tmp"


def _as_somebody() -> list[str]:
    """What makes root a user without rights who may read everything: Python may be in a home."""
    if os.geteuid() != 0:
        return []
    reads = "-all,+dac_read_search"
    return [
        "setpriv",
        f"--reuid={UID}",
        f"--regid={UID}",
        "--clear-groups",
        "--no-new-privs",
        f"--inh-caps={reads}",
        f"--ambient-caps={reads}",
        f"--bounding-set={reads}",
    ]


def _give(place: Path) -> None:
    if os.geteuid() == 0:
        os.chown(place, UID, UID)
    place.chmod(0o700)


def _written_by_the_user() -> set[str]:
    """What that user has in places where everybody may write, and a read-only root would refuse."""
    places = ("/tmp", "/var/tmp", "/dev/shm", "/run/lock")
    return {
        entry.path
        for place in places
        if os.path.isdir(place)
        for entry in os.scandir(place)
        if entry.stat(follow_symlinks=False).st_uid == UID
    }


def _status(http: httpx2.Client, path: str) -> int | None:
    with contextlib.suppress(httpx2.TransportError):
        return http.get(path).status_code
    return None


def _kill(processes: "list[subprocess.Popen[bytes]]") -> None:
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()
