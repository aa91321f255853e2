"""What `pip install reflectory` alone can do, and what it says of the rest."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from storage.records import StudyRecord
from tests.service.listening import listening
from tests.service.site import SMALL_SPEC, Site

ROOT = Path(__file__).parents[3]
MODULE = ROOT / "service" / "reflectory_module.py"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name[0] != "_" and "." not in name and name not in {there!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def base() -> set[str]:
    """The top-level modules of what the project installs without extras, and of all they need."""
    names, wanted = set[str](), [Requirement(text) for text in PROJECT["dependencies"]]
    while wanted:
        asked = wanted.pop()
        name = canonicalize_name(asked.name)
        if name in names or (asked.marker is not None and not asked.marker.evaluate()):
            continue
        names.add(name)
        for text in distribution(name).requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in ("", *asked.extras)
            ):
                wanted.append(Requirement(text.partition(";")[0]))
    owners = packages_distributions()
    return {
        module
        for module, dists in owners.items()
        if {canonicalize_name(one) for one in dists} & names
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """An environment in which nothing but the base is there, and `reflectory` is a module."""
    folder = tmp_path_factory.mktemp("alone")
    ours = {"service", "search", "models", "storage", "reflectory"}
    there = {*base(), *ours, *sys.stdlib_module_names, "sitecustomize"}
    (folder / "sitecustomize.py").write_text(ABSENT.format(there=there))
    shutil.copy(MODULE, folder / "reflectory.py")
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "COLUMNS": "100"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("light") / "data")
    yield site
    site.close()


@pytest.fixture(scope="module")
def study(site: Site) -> StudyRecord:
    study = site.study(space={**SMALL_SPEC["space"], "activation": "tanh"})
    site.run(study)
    site.trial(study, 0, quality=0.5, throughput=10.0)
    site.finish(study)
    return study


def python(environment: dict[str, str], *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_the_base_alone_lists_shows_and_downloads(
    site: Site, study: StudyRecord, alone: dict[str, str], tmp_path: Path
) -> None:
    with listening(site) as (host, port):
        environment = {**alone, "REFLECTORY_SERVER": f"http://{host}:{port}"}
        commands = (
            ("list", "--json"),
            ("front", study.id, "--json"),
            ("download", study.id, "0", "--out", "out"),
        )
        for words in commands:
            got = python(environment, "-m", "service.cli", *words, cwd=tmp_path)
            assert got.returncode == 0, (words, got.stderr)
            if words[-1] == "--json":
                assert json.loads(got.stdout)
    assert (tmp_path / "out" / "trial-0" / "MODEL_CARD.md").is_file()


def test_serve_names_the_extra_that_it_needs(alone: dict[str, str], tmp_path: Path) -> None:
    got = python(alone, "-m", "service.cli", "serve", cwd=tmp_path)
    assert got.returncode == 2
    assert "pip install 'reflectory[server]'" in got.stderr
    assert "Traceback" not in got.stderr


def test_models_name_the_extra_that_they_need(alone: dict[str, str], tmp_path: Path) -> None:
    program = "from reflectory import AsyncClient, Client, Study; from reflectory import load"
    got = python(alone, "-c", program, cwd=tmp_path)
    assert "ImportError: reflectory.load needs" in got.stderr
    assert "pip install 'reflectory[models]'" in got.stderr


def test_the_module_has_what_it_names(alone: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "reflectory.py").write_bytes(MODULE.read_bytes())
    program = (
        "import reflectory, models, models.checkpoint, service.client\n"
        "assert reflectory.load is models.checkpoint.load\n"
        "assert reflectory.compress is models.compress\n"
        "assert all(getattr(reflectory, name) for name in reflectory.__all__)\n"
        "assert dir(reflectory) == sorted(reflectory.__all__)\n"
        "reflectory.fast"
    )
    everything = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    got = python(everything, "-c", program, cwd=tmp_path)
    assert "has no attribute 'fast'; it has AsyncClient, Client" in got.stderr


def test_a_file_that_hides_a_package_is_named(alone: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "models.py").write_text("mine = 1\n")
    got = python(alone, "-c", "from reflectory import Client", cwd=tmp_path)
    assert f"{tmp_path / 'models.py'} hides the package 'models' of Reflectory" in got.stderr


def test_editable_installs_have_the_module(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["editable"])
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("reflectory.py") == MODULE.read_bytes()


def test_extras_that_are_named_exist_and_those_of_servers_bring_one() -> None:
    extras = PROJECT["optional-dependencies"]
    assert extras["client"] == []
    for name in ("ray", "s3", "telemetry", "test"):
        assert extras[name][0].startswith("reflectory[server")
    for wanted in extras.values():
        for one in map(Requirement, wanted):
            if one.name == "reflectory":
                assert set(one.extras) <= set(extras)
    base_names = {Requirement(one).name for one in PROJECT["dependencies"]}
    heavy = {"torch", "numpy", "fastapi", "sqlalchemy", "optuna", "onnxruntime"}
    assert not base_names & heavy
