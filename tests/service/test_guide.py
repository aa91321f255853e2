"""The guide is true: all that it tells to type is run, from the first line to the last."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from search.space import describe
from search.spec import StudySpec
from tests.service.running import Server

GUIDE = (Path(__file__).parents[2] / "deploy" / "GUIDE.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FILES = {"json": "study.json", "csv": "series.csv"}
RUN_BY_THE_TEST = "reflectory serve\n"
USUAL = "http://127.0.0.1:8080"


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


@pytest.mark.skipif(
    subprocess.run(["which", "curl"], capture_output=True, check=False).returncode != 0,
    reason="there is no curl on this machine",
)
def test_everything_that_the_guide_tells_to_type_works(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    for language, text in BLOCK.findall(GUIDE):
        if language in FILES:
            (here / FILES[language]).write_text(text)
    server = Server(tmp_path / "data")
    try:
        server.start()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        run = subprocess.run(
            ["bash", "-c", script(str(server.http.base_url).rstrip("/"))],
            cwd=here,
            env={**os.environ, "PATH": path, "REFLECTORY_DATA_DIR": str(server.data_dir)},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert run.returncode == 0, f"{run.stdout[-3000:]}\n{run.stderr[-3000:]}"
    finally:
        server.close()
    made = {path.name for path in here.iterdir()}
    assert {"models", "study.html", "trials.csv", "best.safetensors"} <= made
    assert any(name.endswith(".zip") for name in made)
    assert "numbers" in run.stdout


def test_the_guides_study_can_be_run() -> None:
    (text,) = [text for language, text in BLOCK.findall(GUIDE) if language == "json"]
    assert describe(StudySpec.model_validate_json(text)).candidates


def test_no_block_is_passed_over() -> None:
    """A block in another language would not be run."""
    languages = [language for language, _ in BLOCK.findall(GUIDE)]
    assert set(languages) == {"sh", "python", *FILES}
    assert len(languages) > 10
    assert script("x").count("reflectory ") > 15
