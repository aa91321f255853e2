"""Documentation that cannot go stale: what the README shows is parsed, built or looked up."""

import json
import re
import shlex
import wave
from pathlib import Path

import numpy as np
import pytest

from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from service.app import create_app
from service.cli import ENTRIES
from service.settings import Settings
from tests import spec_reference
from tests.command_help import all_help

ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    "README.md",
    "deploy/README.md",
    "deploy/docs/tutorials/search-from-scratch.md",
    "deploy/docs/tutorials/published-network.md",
)
README = (ROOT / "README.md").read_text()
FOLDERS = ("models", "search", "storage", "service", "tests", "deploy", r"\.ci")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def specs() -> list[str]:
    return [*blocks("json"), *(path.read_text() for path in (ROOT / "deploy").rglob("*.json"))]


def commands() -> set[str]:
    return set(ENTRIES)


@pytest.mark.parametrize("text", specs())
def test_every_spec_that_is_shown_can_be_run(text: str) -> None:
    space = checked_space(StudySpec.model_validate_json(text)).describe()
    assert space.candidates


def test_there_are_specs_to_check() -> None:
    assert len(specs()) >= 3


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_that_is_named_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    named = re.findall(r"reflectory ([a-z]+)(?: [^`|\n]*)?", text)
    spelled = {
        word for word in named if f"`reflectory {word}" in text or f"/reflectory {word}" in text
    }
    assert spelled
    assert spelled <= commands()


def test_every_command_that_users_have_is_in_the_readme() -> None:
    listed = set(re.findall(r"^\| `reflectory ([a-z]+)", README, re.MULTILINE))
    visible = {name for name, entry in ENTRIES.items() if entry.panel is not None}
    assert listed == visible


def test_every_option_that_is_named_exists() -> None:
    helps = all_help()
    ours = (line for block in blocks("sh") for line in block.splitlines() if "reflectory" in line)
    table = (line for line in README.splitlines() if line.startswith("| `reflectory"))
    for line in (*ours, *table):
        for option in re.findall(r"(--[a-z-]+)", line):
            assert option in helps, line


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_that_is_named_exists(document: str) -> None:
    text = (ROOT / document).read_text()
    paths = set(re.findall(rf"(?<![\w/.])((?:{'|'.join(FOLDERS)})/[\w./-]*\w/?)", text))
    assert paths
    for path in paths - {"models/parametrizations/your_kind.py"}:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("module", re.findall(r"python -m ([\w.]+)", README))
def test_every_program_that_is_named_exists(module: str) -> None:
    path = ROOT / module.replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"make ([a-z-]+)`", README)) | set(
        re.findall(r"^make ([a-z-]+)$", README, re.MULTILINE)
    )
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize("block", blocks("python"))
def test_every_python_example_compiles_and_names_what_exists(block: str) -> None:
    compile(block, "README.md", "exec")
    for module, names in re.findall(r"^from ([\w.]+) import (.+)$", block, re.MULTILINE):
        scope: dict[str, object] = {}
        exec(f"from {module} import {names}", scope)
    from service.client import Client

    for method in re.findall(r"client\.([a-z_]+)\(", block):
        assert callable(getattr(Client, method))


def test_every_call_that_is_named_exists(tmp_path: Path) -> None:
    paths = set(create_app(Settings(data_dir=tmp_path)).openapi()["paths"])
    known = {re.sub(r"\{\w+\}", "{}", path) for path in paths} | {"/docs", "/dashboard", "/"}
    rows = [line for line in README.splitlines() if re.match(r"\| `(GET|POST|\.\.\.)", line)]
    assert len(rows) > 6
    for row in rows:
        for path in re.findall(r"(?:GET|POST) (/[\w/{}]*)", row.split("|")[1]):
            assert re.sub(r"\{\w+\}", "{}", path) in known, path
    for block in blocks("sh"):
        for line in block.splitlines():
            for url in (word for word in shlex.split(line) if word.startswith("http://")):
                path = re.sub(r"http://[^/]+", "", url)
                plain = re.sub(r"/ID(?=/|$)", "/{}", re.sub(r"/\d+(?=/|$)", "/{}", path))
                assert plain in known, url


def test_the_example_of_a_network_makes_frames_of_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pieces of 4 seconds of the first recording, none of the second, which is too short."""
    text = (ROOT / "deploy/docs/tutorials/published-network.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    sound = np.random.default_rng(0).integers(-(2**15), 2**15, 130_000).astype("<i2")
    (tmp_path / "recordings").mkdir()
    for name, piece in (("1.wav", sound), ("2.wav", sound[:5_000])):
        with wave.open(str(tmp_path / "recordings" / name), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(16_000)
            file.writeframes(piece.tobytes())
    monkeypatch.chdir(tmp_path)
    exec(compile(program, "published-network.md", "exec"), {})
    found = np.load(tmp_path / "frames.npz")["input"]
    assert (found.shape, found.dtype) == ((2, 125, 576), np.float32)
    expected = sound[:128_000].reshape(2, 125, 512) / 2**15
    np.testing.assert_array_equal(found[:, :, 64:], expected)
    np.testing.assert_array_equal(found[:, 1:, :64], expected[:, :-1, -64:])
    assert not found[:, 0, :64].any()


def test_specs_are_shown_as_they_would_be_sent() -> None:
    for text in specs():
        assert isinstance(json.loads(text), dict)


def test_every_field_of_a_spec_has_a_description() -> None:
    assert spec_reference.without_description() == []


def test_the_reference_of_specs_is_the_codes() -> None:
    written = (ROOT / "deploy/docs/reference/spec.md").read_text()
    assert written == spec_reference.reference(), spec_reference.__doc__
