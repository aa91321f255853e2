"""`reflectory demo`: what `make demo` shows, in small."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from models import checkpoint

SMALL = {
    "name": "demo",
    "task": {"kind": "digits", "train_samples": 100},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": {"low": 8, "high": 16}},
    "budget": {"trials": 3, "epochs": 1},
}


def demo(
    folder: Path, spec: object, **environment: str
) -> tuple[subprocess.CompletedProcess[str], list[Path]]:
    """Run it; the second value is everything that it wrote beside its data directory."""
    document = folder / "spec.json"
    document.write_text(json.dumps(spec))
    out = folder / "out"
    run = subprocess.run(
        [sys.executable, "-m", "service.cli", "demo", str(document), "--out", str(out)],
        capture_output=True,
        text=True,
        timeout=2400,
        env={**os.environ, **environment},
    )
    written = [path for path in out.rglob("*") if path.is_file() and "data" not in path.parts]
    return run, written


@pytest.mark.slow
@pytest.mark.cold
def test_the_demo_ends_with_a_front_and_the_best_models_files(tmp_path: Path) -> None:
    run, written = demo(tmp_path, SMALL)
    assert run.returncode == 0, run.stdout + run.stderr
    for promised in ("page ", "dashboard ", "front ", "Pareto front: ", "Best accuracy: "):
        assert promised in run.stdout
    (model,) = (path for path in written if path.name == "model.safetensors")
    reports = {path.suffix for path in written if path.stem == "report"}
    assert reports == {".json", ".csv", ".html"}
    assert checkpoint.load(model).spec.parameter_count() > 0
    for path in written:
        assert path.name == "server.log" or str(path) in run.stdout
    (lock,) = (tmp_path / "out").rglob("serve.lock")
    assert not (lock.parent / "server.json").exists(), "the server ended in order"


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path) -> None:
    run, _ = demo(tmp_path, SMALL, REFLECTORY_HOST="0.0.0.0")
    assert run.returncode == 1
    assert "did not start" in run.stderr
    assert "loopback" in run.stderr, "the log's own words"
    assert "Traceback" not in run.stderr


def test_a_demo_whose_study_is_refused_is_no_success(tmp_path: Path) -> None:
    run, written = demo(tmp_path, {**SMALL, "limits": {"parameters": 1}})
    assert run.returncode == 1
    assert "limits.parameters" in run.stderr
    assert [path.name for path in written] == ["server.log"]
