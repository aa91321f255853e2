"""Documentation that cannot go stale: what it shows is parsed, built, looked up or regenerated."""

import json
import re
import shlex
import wave
from pathlib import Path

import numpy as np
import pytest

from search.spaces.model_space import PARAMETRIZATION_KINDS
from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from service.app import create_app
from service.cli import ENTRIES
from service.settings import Settings
from tests import spec_reference
from tests.command_help import all_help
from tests.pictures import parametrizations
from tests.references.__main__ import FOLDER, PAGES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "deploy/docs"
REFERENCE = DOCS / "reference"
GENERATED = {REFERENCE / name for name in PAGES}
WRITTEN = sorted({ROOT / "README.md", ROOT / "deploy/README.md", *DOCS.rglob("*.md")} - GENERATED)
"""Pages that are written by hand."""
# Records name what was there on their day.
PRESENT = [page for page in WRITTEN if page.parent != DOCS / "benchmarks"]
FOLDERS = ("models", "search", "storage", "service", "tests", "deploy", r"\.ci")
TO_BE_WRITTEN = {"models/parametrizations/your_kind.py"}


def label(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(language: str) -> list[tuple[Path, str]]:
    return [
        (page, text)
        for page in PRESENT
        for text in re.findall(
            rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL
        )
    ]


def specs() -> list[str]:
    shown = [text for _, text in blocks("json") if '"task"' in text]
    return [*shown, *(path.read_text() for path in (ROOT / "deploy/examples").rglob("*.json"))]


@pytest.mark.parametrize("text", specs())
def test_every_spec_that_is_shown_can_be_run(text: str) -> None:
    space = checked_space(StudySpec.model_validate_json(text)).describe()
    assert space.candidates


def test_specs_are_shown_as_they_would_be_sent() -> None:
    assert len(specs()) >= 3
    for text in specs():
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("page", PRESENT, ids=label)
def test_every_command_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"(?:`|/|^)reflectory ([a-z]+)", text, re.MULTILINE)
    assert set(named) <= set(ENTRIES)


def test_every_command_that_users_have_is_in_the_reference() -> None:
    text = (REFERENCE / "cli.md").read_text()
    listed = set(re.findall(r"^\| `reflectory ([a-z]+)`", text, re.MULTILINE))
    visible = {name for name, entry in ENTRIES.items() if entry.panel is not None}
    assert listed == visible


def test_every_option_that_is_named_exists() -> None:
    helps = all_help()
    for _, block in blocks("sh"):
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("reflectory "):
                for option in re.findall(r"(?<=\s)(--[a-z-]+)", line):
                    assert option in helps, line


@pytest.mark.parametrize("page", WRITTEN, ids=label)
def test_every_path_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    paths = set(re.findall(rf"(?<![\w/.])((?:{'|'.join(FOLDERS)})/[\w./-]*\w/?)", text))
    for path in paths - TO_BE_WRITTEN:
        assert (ROOT / path).exists() or (page.parent / path).exists(), path


@pytest.mark.parametrize("page", [*WRITTEN, *sorted(GENERATED)], ids=label)
def test_every_link_leads_somewhere(page: Path) -> None:
    """Links within the documentation stay in it, so that it is a site of its own."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`", "", text)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path).resolve() if path else page
        assert found.is_file(), target
        if page.is_relative_to(DOCS):
            assert found.is_relative_to(DOCS), target
        if anchor:
            assert anchor in anchors(found), target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


def test_every_page_is_in_the_index() -> None:
    text = (DOCS / "index.md").read_text()
    linked = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)\)", text)}
    assert {page for page in DOCS.rglob("*.md") if page.name != "index.md"} <= linked


def programs() -> list[str]:
    return sorted({name for page in PRESENT for name in named_programs(page)})


def named_programs(page: Path) -> list[str]:
    return re.findall(r"python -m (tests[\w.]*)", page.read_text())


@pytest.mark.parametrize("module", programs())
def test_every_program_that_is_named_exists(module: str) -> None:
    path = ROOT / module.rstrip(".").replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    text = "".join(page.read_text() for page in PRESENT)
    named = set(re.findall(r"`make ([a-z-]+)`", text)) | set(
        re.findall(r"^make ([a-z-]+)$", text, re.MULTILINE)
    )
    assert {"demo", "test"} <= named <= targets


@pytest.mark.parametrize(("page", "block"), blocks("python"))
def test_every_python_example_compiles_and_names_what_exists(page: Path, block: str) -> None:
    compile(block, page.name, "exec")
    for module, names in re.findall(r"^from ([\w.]+) import (.+)$", block, re.MULTILINE):
        scope: dict[str, object] = {}
        exec(f"from {module} import {names}", scope)
    from service.client import Client

    for method in re.findall(r"client\.([a-z_]+)\(", block):
        assert callable(getattr(Client, method))


def test_every_call_that_is_named_exists(tmp_path: Path) -> None:
    paths = set(create_app(Settings(data_dir=tmp_path)).openapi()["paths"])
    known = {re.sub(r"\{\w+\}", "{}", path) for path in paths} | {"/docs", "/dashboard", "/"}
    text = (DOCS / "how-to/http.md").read_text()
    rows = [line for line in text.splitlines() if re.match(r"\| `(GET|POST|\.\.\.)", line)]
    assert len(rows) > 6
    for row in rows:
        for path in re.findall(r"(?:GET|POST) (/[\w/{}]*)", row.split("|")[1]):
            assert re.sub(r"\{\w+\}", "{}", path) in known, path
    for page, block in blocks("sh"):
        if page.name != "http.md":
            continue
        for line in block.splitlines():
            for url in (word for word in shlex.split(line) if word.startswith("http://")):
                path = re.sub(r"http://[^/]+", "", url)
                plain = re.sub(r"/ID(?=/|$)", "/{}", re.sub(r"/\d+(?=/|$)", "/{}", path))
                assert plain in known, url


def test_the_example_of_a_network_makes_frames_of_recordings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pieces of 4 seconds of the first recording, none of the second, which is too short."""
    text = (DOCS / "tutorials/published-network.md").read_text()
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


def test_every_field_of_a_spec_has_a_description() -> None:
    assert spec_reference.without_description() == []


@pytest.mark.parametrize("name", PAGES)
def test_the_references_are_the_codes(name: str) -> None:
    assert (FOLDER / name).read_text() == PAGES[name](), "python -m tests.references"


@pytest.mark.parametrize("member", parametrizations.MEMBERS, ids=lambda member: member.kind)
def test_a_picture_has_a_cell_for_each_parameter(
    member: parametrizations.AnyParametrization,
) -> None:
    drawn = parametrizations.drawn(member)
    slot = parametrizations.slot_of(member)
    assert drawn.count('class="stored"') == member.parameter_count(slot)
    kept = (DOCS / f"pictures/{member.kind}.svg").read_text()
    assert re.sub(r'"0?\.\d+"|"[01]\.\d+"', "", kept) == re.sub(
        r'"0?\.\d+"|"[01]\.\d+"', "", drawn
    ), "python -m tests.pictures"
    assert f"pictures/{member.kind}.svg" in (DOCS / "explanation/parametrizations.md").read_text()


def test_every_parametrization_has_a_picture() -> None:
    assert {member.kind for member in parametrizations.MEMBERS} == set(PARAMETRIZATION_KINDS)
