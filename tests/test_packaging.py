"""What has to hold for the wheel and a fresh clone to work, as far as the sources show it."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("service", "search", "models", "storage")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked(*paths: str) -> list[str]:
    if not (ROOT / ".git").exists():
        pytest.skip("these are not sources under git")
    run = subprocess.run(
        ["git", "ls-files", "--", *paths], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return run.stdout.splitlines()


def test_the_wheel_has_the_four_packages_and_nothing_else() -> None:
    target = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert sorted(target["packages"]) == sorted(PACKAGES)


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_is_typed_and_no_namespace(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()
    for folder in {path.parent for path in (ROOT / package).rglob("*.py")}:
        assert (folder / "__init__.py").is_file(), folder


def test_no_ignored_file_is_needed() -> None:
    """Hatchling leaves out what git ignores; anchored patterns hit no package."""
    for pattern in (ROOT / ".gitignore").read_text().split():
        assert pattern.startswith("/") or pattern in ("__pycache__/", "*.egg-info/"), pattern
    for package in PACKAGES:
        run = subprocess.run(
            ["git", "ls-files", "--others", "--ignored", "--exclude-standard", "--", package],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert {Path(path).suffix for path in run.stdout.splitlines()} <= {".pyc"}


def test_the_licence_is_apache_2_in_full() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Version 2.0, January 2004" in text
    for section in range(1, 10):
        assert f"\n   {section}. " in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_changelog_names_the_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert f"## {PROJECT['project']['version']}" in changelog


def test_the_makefile_installs_the_torch_that_the_project_asks_for() -> None:
    version = re.search(r"^TORCH_VERSION \?= (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert version is not None
    models = PROJECT["project"]["optional-dependencies"]["models"]
    (asked,) = (name for name in models if name.startswith("torch"))
    assert asked.startswith(f"torch>={version[1].rpartition('.')[0]}")


def test_scripts_can_be_run() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


def test_the_top_level_holds_what_it_should() -> None:
    allowed = {*PACKAGES, "tests", "deploy", ".ci"}
    folders = {path.partition("/")[0] for path in tracked() if "/" in path}
    assert folders <= allowed
