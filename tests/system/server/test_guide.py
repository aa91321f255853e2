"""The documentation is true: what it tells to type is run, page by page, from line to line."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
from torch import nn

from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from tests.patience import LONG_SECONDS
from tests.search.graphs.small_networks import classifier, vectors
from tests.service.running import Server

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "deploy/docs"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$", re.MULTILINE)
FILES = {"json": "study.json", "csv": "series.csv"}
"""Blocks that readers save, and the names under which they do."""
STARTS = ("reflectory serve", "make ")
"""What begins so is run by the test itself, or by another one."""
USUAL = "http://127.0.0.1:8080"

FIRST_ID = 'import json, sys; print(json.load(sys.stdin)[0]["id"])'

GUIDE = DOCS / "tutorials/search-from-scratch.md"
README = ROOT / "README.md"

ON_ONE_SERVER = (
    DOCS / "tutorials/compress-your-gru.md",
    README,
    DOCS / "tutorials/your-data-to-onnx.md",
    GUIDE,
    DOCS / "how-to/compress-any-network.md",
    DOCS / "how-to/compare-data-sets.md",
    DOCS / "how-to/webhooks.md",
    # The calls of the second are about the study of the first.
    DOCS / "how-to/python.md",
    DOCS / "how-to/http.md",
)
ON_A_GUARDED_SERVER = (DOCS / "how-to/quotas.md", DOCS / "how-to/team.md")
"""After these, nobody is let in without a key."""

NOT_RUN_PAGES = {
    "tutorials/published-network.md",
    *(
        f"how-to/{name}.md"
        for name in (
            *("backup", "bucket", "compose", "develop", "kubernetes", "observability", "ray"),
            *("reproduce-papers", "several-machines", "slurm", "upgrade"),
        )
    ),
}
"""What needs more than a server and a minute. `tests/deploy/` looks up what these name."""

SHORTER: Mapping[str, str] = {
    "--trials 6 --epochs 2": "--trials 3 --epochs 1",
    "--limit parameters=8000\n": "--limit parameters=8000 --trials 2 --epochs 1 --out short\n",
    "--limit bytes=300KB --out small.onnx": "--limit bytes=300KB --trials 3 --out smaller.onnx",
    '"trials": 20, "epochs": 5': '"trials": 4, "epochs": 1',
    '{"bytes": 300_000}': '{"bytes": 300_000}, "budget": {"trials": 4}',
    "/ID/": "/$ID/",
    "curl -s": "curl -fs",
}
"""What readers are shown, and what is run in its place, to be done sooner."""

needs_curl = pytest.mark.skipif(
    shutil.which("curl") is None, reason="there is no curl on this machine"
)


def ran(text: str, here: Path, server: Server) -> str:
    """What a shell script prints that has to succeed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    run = subprocess.run(
        ["bash", "-c", text],
        cwd=here,
        env={**os.environ, "PATH": path, "REFLECTORY_DATA_DIR": str(server.data_dir)},
        capture_output=True,
        text=True,
        timeout=LONG_SECONDS,
        check=False,
    )
    assert run.returncode == 0, f"{run.stdout[-3000:]}\n{run.stderr[-3000:]}"
    return run.stdout


def script(page: Path, url: str, *, shorter: Mapping[str, str] = SHORTER) -> str:
    """Everything in order, as one shell script that ends at its first error."""
    lines = ["set -euo pipefail"]
    blocks = BLOCK.findall(page.read_text())
    if any("/ID/" in text for _, text in blocks):
        lines.append(f"ID=$(reflectory list --json | python3 -c '{FIRST_ID}')")
    for language, text in blocks:
        if language in FILES or text.startswith(STARTS):
            continue
        if language == "python":
            text = f"python3 - <<'END'\n{text}END\n"
        for shown, run in shorter.items():
            text = text.replace(shown, run) if run not in text else text
        lines.append(text.replace(USUAL, url))
    return "\n".join(lines)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("data"))
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what pages take as given."""
    folder = tmp_path_factory.mktemp("here")
    (folder / "deploy").mkdir()
    (folder / "deploy" / "examples").symlink_to(ROOT / "deploy" / "examples")
    gru = nn.ModuleDict({"rnn": nn.GRU(8, 64, batch_first=True), "readout": nn.Linear(64, 10)})
    safetensors.torch.save_file(gru.state_dict(), folder / "gru.safetensors")
    (folder / "model.onnx").write_bytes(classifier().SerializeToString())
    np.savez(folder / "calibration.npz", x=vectors(200))
    return folder


def run_page(page: Path, here: Path, server: Server) -> str:
    for language, text in BLOCK.findall(page.read_text()):
        if language in FILES:
            (here / FILES[language]).write_text(text)
    return ran(script(page, str(server.http.base_url).rstrip("/")), here, server)


def label(page: Path) -> str:
    return str(page.relative_to(ROOT))


@needs_curl
@pytest.mark.parametrize(
    "page",
    [
        # Tutorials train for minutes.
        pytest.param(page, marks=pytest.mark.slow if page.parent.name == "tutorials" else [])
        for page in ON_ONE_SERVER
    ],
    ids=label,
)
def test_everything_that_a_page_tells_to_type_works(page: Path, here: Path, server: Server) -> None:
    output = run_page(page, here, server)
    made = {path.name for path in here.iterdir()}
    wanted = {
        "compress-your-gru.md": {"gru.safetensors", "small"},
        "README.md": {"small.pt"},
        "your-data-to-onnx.md": {"series.csv", "series-models"},
        "search-from-scratch.md": {"models", "study.html", "trials.csv", "best.safetensors"},
        "compress-any-network.md": {"small.onnx"},
        "http.md": {"checkpoint"},
    }
    assert wanted.get(page.name, set()) <= made
    if page == GUIDE:
        assert any(name.endswith(".zip") for name in made)
        assert "parameters" in output
    if page.name == "compress-any-network.md":
        assert (here / "small.onnx").stat().st_size < (here / "model.onnx").stat().st_size
    if page.name == "http.md":
        assert "event: front" in output
        assert (here / "checkpoint").read_bytes()[8:9] == b"{", "a safetensors file begins so"


@pytest.mark.slow
def test_what_teams_type_works(tmp_path: Path) -> None:
    server = Server(tmp_path / "data")
    try:
        server.start()
        output = "".join(run_page(page, tmp_path, server) for page in ON_A_GUARDED_SERVER)
    finally:
        server.close()
    assert "rfl_" in output


def test_the_guides_study_can_be_run() -> None:
    (text,) = [text for language, text in BLOCK.findall(GUIDE.read_text()) if language == "json"]
    assert checked_space(StudySpec.model_validate_json(text)).candidates


def test_every_page_is_run_or_says_why_it_is_not() -> None:
    pages = [page for folder in ("tutorials", "how-to") for page in (DOCS / folder).glob("*.md")]
    programs = {
        page
        for page in pages
        if any(language in ("sh", "python") for language, _ in BLOCK.findall(page.read_text()))
    }
    says_why = {page for page in pages if NOT_RUN.search(page.read_text())}
    assert {str(page.relative_to(DOCS)) for page in says_why} <= NOT_RUN_PAGES
    assert programs - says_why == {*ON_ONE_SERVER, *ON_A_GUARDED_SERVER} - {README}


@pytest.mark.parametrize("page", [*ON_ONE_SERVER, *ON_A_GUARDED_SERVER], ids=label)
def test_no_block_is_passed_over(page: Path) -> None:
    """A block in another language would not be run."""
    languages = [language for language, _ in BLOCK.findall(page.read_text())]
    assert set(languages) <= {"sh", "python", *FILES}
    assert languages


def test_what_is_shortened_is_there() -> None:
    texts = "".join(page.read_text() for page in ON_ONE_SERVER)
    assert [shown for shown in SHORTER if shown not in texts] == []
    assert script(GUIDE, "x").count("reflectory ") > 15
