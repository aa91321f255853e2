"""Checks an installed wheel from outside the repository: run by the environment it is installed in.

    python tests/check_wheel.py SPEC.json

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

from models.kernels import prebuilt
from models.kernels.library import library
from service.client import Client

_PACKAGES = ("service", "search", "models", "storage")
_PAGES = ("/", "/dashboard", "/docs", "/openapi.json")


def main() -> None:
    """Check the packages, then a server that was started from the wheel."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    owners = packages_distributions()
    for package in _PACKAGES:
        if owners.get(package) != ["reflectory"]:
            raise SystemExit(f"the package {package!r} belongs to {owners.get(package)}, not to us")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        _check_kernels()
        _check_server(spec, Path(folder))
    sys.stdout.write("the wheel is whole: packages, kernels, server, dry run and pages\n")


def _check_kernels() -> None:
    """The wheel's own library is loaded; no compiler is asked."""
    found = library()
    if shutil.which("c++") is None:
        return  # no wheel has any that was built here
    if found is None or Path(found._name).parent != prebuilt.FOLDER:
        raise SystemExit(f"the kernels are {found}; expected were the wheel's own")


def _check_server(spec: dict[str, Any], folder: Path) -> None:
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
