"""Checks an installed wheel from outside the repository: run by the environment it is installed in.

    python tests/check_wheel.py SPEC.json BIN

BIN holds the commands of an environment that has the wheel without extras: the client alone.

It runs in an empty folder, so that a template, a migration or a module that is missing in the wheel
is missing here too. `make wheel-check` calls it.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import httpx2

import reflectory
from models.kernels import prebuilt
from models.kernels.library import library
from service.client import Client

_PACKAGES = ("service", "search", "models", "storage")
_STUDY = {
    "task": {"kind": "digits", "train_samples": 100},
    "architectures": ["rnn"],
    "parametrizations": ["dense"],
    "space": {"hidden_size": 8},
    "budget": {"trials": 1, "epochs": 1},
}
_PAGES = ("/", "/dashboard", "/docs", "/openapi.json")


def main() -> None:
    """Check the packages, then a server that was started from the wheel."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    client_alone = Path(sys.argv[2])
    owners = packages_distributions()
    for package in _PACKAGES:
        if owners.get(package) != ["reflectory"]:
            raise SystemExit(f"the package {package!r} belongs to {owners.get(package)}, not to us")
    if reflectory.Client is not Client:
        raise SystemExit("`from reflectory import Client` gives another class")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        _check_kernels()
        _check_server(spec, Path(folder), client_alone)
    sys.stdout.write("the wheel is whole: packages, kernels, server, dry run, pages and client\n")


def _check_kernels() -> None:
    """The wheel's own library is loaded; no compiler is asked."""
    found = library()
    if shutil.which("c++") is None:
        return  # no wheel has any that was built here
    if found is None or Path(found._name).parent != prebuilt.FOLDER:
        raise SystemExit(f"the kernels are {found}; expected were the wheel's own")


def _check_client(url: str, study: str, bin_folder: Path, folder: Path) -> None:
    """The client alone has no torch, and does what a client does."""
    python, program = bin_folder / "python", bin_folder / "reflectory"
    torch = subprocess.run([python, "-c", "import torch"], capture_output=True, check=False)
    if torch.returncode == 0:
        raise SystemExit("the environment of the client alone has torch")
    for words in (("list",), ("front", study), ("download", study, "--out", folder / "out")):
        subprocess.run([program, *words, "--server", url], check=True, stdout=subprocess.DEVNULL)
    if not (folder / "out" / "trial-0" / "MODEL_CARD.md").is_file():
        raise SystemExit("the client alone downloaded no model card")
    refused = subprocess.run([program, "serve"], capture_output=True, text=True, check=False)
    if refused.returncode != 2 or "pip install 'reflectory[server]'" not in refused.stderr:
        raise SystemExit(f"`reflectory serve` without [server] says {refused.stderr!r}")


def _check_server(spec: dict[str, Any], folder: Path, client_alone: Path) -> None:
    command = [str(Path(sysconfig.get_path("scripts")) / "reflectory"), "serve", "--port", "0"]
    server = subprocess.Popen(
        [*command, "--json", "--data-dir", str(folder / "data")], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    try:
        line = server.stdout.readline()
        if not line:
            raise SystemExit(f"the server ended with status {server.wait()} before it was ready")
        url = json.loads(line)["url"]
        with Client(url) as client:
            answer = client.dry_run(spec)
            if not answer.candidates:
                raise SystemExit("the dry run names no candidate")
            verdicts = {kind for table in client.papers() for kind in table.verdicts}
            if "reproduced" not in verdicts:
                raise SystemExit(f"the papers' tables have no measured rows, but {verdicts}")
            study = client.submit(_STUDY).wait()
            _check_client(url, study.id, client_alone, folder)
        with httpx2.Client(
            base_url=url, follow_redirects=True, trust_env=False, timeout=300
        ) as http:
            for page in _PAGES:
                response = http.get(page)
                if not response.is_success:
                    raise SystemExit(f"GET {page} was answered {response.status_code}")
    finally:
        server.terminate()
        status = server.wait(timeout=60)
    if status != 0:
        raise SystemExit(f"the server ended with status {status}")


if __name__ == "__main__":
    main()
