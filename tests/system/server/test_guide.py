"""Guide and README are true: what they tell to type is run, the guide from line to line."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from search.studies.spec import StudySpec
from search.studies.submission import checked_space
from tests.patience import LONG_SECONDS
from tests.search.graphs.small_networks import classifier, vectors
from tests.service.running import Server

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "deploy/docs/tutorials/search-from-scratch.md").read_text()
README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = {"json": "study.json", "csv": "series.csv"}
RUN_BY_THE_TEST = "reflectory serve\n"
USUAL = "http://127.0.0.1:8080"


FIRST_ID = 'import json, sys; print(json.load(sys.stdin)[0]["id"])'

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


def script(url: str) -> str:
    """Everything in order, as one shell script that ends at its first error."""
    lines = ["set -euo pipefail"]
    for language, text in BLOCK.findall(GUIDE):
        if text == RUN_BY_THE_TEST or language in FILES:
            continue
        if language == "python":
            text = f"python3 - <<'END'\n{text}END\n"
        lines.append(text.replace(USUAL, url))
    return "\n".join(lines)


@needs_curl
def test_everything_that_the_guide_tells_to_type_works(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for language, text in BLOCK.findall(GUIDE):
        if language in FILES:
            (here / FILES[language]).write_text(text)
    server = Server(tmp_path / "data")
    try:
        server.start()
        output = ran(script(str(server.http.base_url).rstrip("/")), here, server)
    finally:
        server.close()
    made = {path.name for path in here.iterdir()}
    assert {"models", "study.html", "trials.csv", "best.safetensors"} <= made
    assert any(name.endswith(".zip") for name in made)
    assert "parameters" in output


def test_the_guides_study_can_be_run() -> None:
    (text,) = [text for language, text in BLOCK.findall(GUIDE) if language == "json"]
    assert checked_space(StudySpec.model_validate_json(text)).candidates


def test_no_block_is_passed_over() -> None:
    """A block in another language would not be run."""
    languages = [language for language, _ in BLOCK.findall(GUIDE)]
    assert set(languages) == {"sh", "python", *FILES}
    assert len(languages) > 10
    assert script("x").count("reflectory ") > 15


def readme_script(url: str) -> str:
    """What the README shows of Python and curl, on a study that is short."""
    found: dict[str, list[str]] = {"python": [], "sh": []}
    for language, text in BLOCK.findall(README):
        found.get(language, []).append(text)
    # The model that a program loads is the one that another downloads, of the newest study.
    programs = sorted(
        found["python"], key=lambda text: ("model.onnx" not in text, "Client(" not in text)
    )
    lines = ["set -euo pipefail"]
    for program in programs:
        short = program.replace('"trials": 20, "epochs": 5', '"trials": 4, "epochs": 1').replace(
            '{"bytes": 300_000}', '{"bytes": 300_000}, "budget": {"trials": 4}'
        )
        lines.append(f"python3 - <<'END'\n{short}END\n")
    lines.append(f"ID=$(reflectory list --json | python3 -c '{FIRST_ID}')")
    (calls,) = [text for text in found["sh"] if "curl" in text]
    lines.append(calls.replace("/ID/", "/$ID/").replace("curl -s", "curl -fs"))
    return "\n".join(lines).replace(USUAL, url)


@needs_curl
def test_the_programs_and_calls_of_the_readme_work(tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "deploy").mkdir(parents=True)
    (here / "deploy" / "examples").symlink_to(ROOT / "deploy" / "examples")
    (here / "model.onnx").write_bytes(classifier().SerializeToString())
    np.savez(here / "calibration.npz", x=vectors(200))
    server = Server(tmp_path / "data")
    try:
        server.start()
        output = ran(readme_script(str(server.http.base_url).rstrip("/")), here, server)
    finally:
        server.close()
    assert "event: front" in output
    assert (here / "small.onnx").stat().st_size < (here / "model.onnx").stat().st_size
    assert (here / "checkpoint").read_bytes()[8:9] == b"{", "a safetensors file begins so"
