"""The README's worked examples, followed to the letter in a copy of the package."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "models/README.md").read_text()
EXAMPLES = {
    "circulant": ("models/parametrizations/families.py", "Variants"),
    "mgu": ("models/architectures/__init__.py", "_Variants"),
}
CONFORMANCE = [
    f"tests/conformance/test_{name}.py"
    for name in ("parametrizations", "architectures", "structured_weights")
]


def file_of(kind: str) -> tuple[str, str]:
    """Where the README says that an example's file is, and what is in it."""
    where = rf"The file, `({kind}\.py)`\s+in\s+`(models/\w+)`:\n\n```python\n(.*?)```"
    match = re.search(where, README, re.S)
    assert match is not None
    return f"{match[2]}/{match[1]}", match[3]


def follow(kind: str, copy: Path) -> None:
    """Add an example's file, and its name to the union that the README names."""
    path, content = file_of(kind)
    (copy / path).write_text(content)
    registry, union = EXAMPLES[kind]
    section = README[README.index(content) :]
    line = re.search(r"`(from models\.\S+ import (\w+))`", section)
    assert line is not None
    assert f"`{registry}`" in section[: line.start()]
    text = (copy / registry).read_text()
    text = text.replace("\n\nfrom pydantic", f"\n\n{line[1]}\nfrom pydantic", 1)
    head, body = text.split(f"\n{union}: TypeAlias = ", 1)
    if body.startswith("("):
        body = body.replace("\n)", f"\n    | {line[2]}\n)", 1)
    else:
        body = body.replace("\n", f" | {line[2]}\n", 1)
    (copy / registry).write_text(f"{head}\n{union}: TypeAlias = {body}")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("followed")
    shutil.copytree(ROOT / "models", folder / "models")
    for name in ("search", "storage", "service", "tests", "deploy", "pyproject.toml"):
        (folder / name).symlink_to(ROOT / name)
    for kind in EXAMPLES:
        follow(kind, folder)
    return folder


@pytest.mark.slow
def test_what_the_readme_shows_conforms(copy: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    kinds = " or ".join(EXAMPLES)
    result = subprocess.run(
        [*command, "--rootdir", str(copy), "-k", kinds, *CONFORMANCE],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    passed = re.search(r"(\d+) passed", result.stdout)
    assert passed is not None
    assert int(passed[1]) >= 40, result.stdout[-500:]


@pytest.mark.parametrize("kind", EXAMPLES)
def test_what_the_readme_shows_is_in_the_projects_style(kind: str, copy: Path) -> None:
    path, _ = file_of(kind)
    for command in (["check"], ["format", "--check"]):
        result = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", "pyproject.toml", path],
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout
