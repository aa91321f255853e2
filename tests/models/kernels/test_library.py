"""Building the kernels: once, by one process, whole or not at all."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from models.kernels import compiling
from models.kernels.compiling import BuildError
from models.kernels.library import load

COMPILER = shutil.which("c++") or shutil.which("g++")

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")

RUN_A_MODEL = """
import logging, torch
logging.basicConfig(level=logging.INFO)
from models.kernels.calls import Kind
from models.forms import LowRankForm
from models.backends.loops import gru_sequence_reset_before
from models.backends.call import PlainInputs, SequenceCall
from models.backends.sequences import run_sequence
generator = torch.Generator().manual_seed(0)
def draw(*shape):
    return torch.randn(shape, generator=generator)
form = LowRankForm(draw(3, 6, 2), draw(3, 2, 6))
inputs = PlainInputs(draw(4, 5, 3), draw(18, 3), draw(18))
kind = Kind("gru_reset_before", "tanh", 0.0)
state = (draw(5, 6),)
call = SequenceCall(kind, gru_sequence_reset_before, form, inputs, state, return_sequences=False)
_, (last,) = run_sequence(call)
print(last.double().sum().item())
"""


def run_a_model(cache: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN_A_MODEL],
        env={**os.environ, "REFLECTORY_KERNEL_CACHE": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def slow_compiler(folder: Path) -> Path:
    """The real compiler, which notes each library that it links and takes a while longer."""
    script = folder / "compiler"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exec ' + f"{COMPILER} --version\n"
        f'case "$*" in *-shared*) echo linked >> {folder / "runs"}; sleep 1;; esac\n'
        f'exec {COMPILER} "$@"\n'
    )
    script.chmod(0o755)
    return script


@pytest.mark.slow
@needs_compiler
def test_processes_that_start_together_build_once_and_compute_the_same(tmp_path: Path) -> None:
    compiler = slow_compiler(tmp_path)
    cache = tmp_path / "deep" / "cache"
    workers = [run_a_model(cache, CXX=str(compiler)) for _ in range(3)]
    outputs = [worker.communicate(timeout=1200) for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], outputs
    assert len({found for found, _ in outputs}) == 1
    assert (tmp_path / "runs").read_text().split() == ["linked"]
    assert sorted(path.suffix for path in cache.iterdir()) == ["", ".so"]

    again = run_a_model(cache, CXX=str(compiler))
    assert again.communicate(timeout=1200)[0] == outputs[0][0]
    assert (tmp_path / "runs").read_text().split() == ["linked"]


def test_without_a_compiler_models_run_all_the_same_and_one_line_says_why(tmp_path: Path) -> None:
    worker = run_a_model(tmp_path, CXX="no-such-compiler")
    found, log = worker.communicate(timeout=1200)
    assert worker.returncode == 0, log
    assert log.count("no CPU kernels") == 1
    assert "no-such-compiler" in log
    expected, _ = run_a_model(tmp_path, REFLECTORY_BACKEND="torch").communicate(timeout=1200)
    assert float(found) == pytest.approx(float(expected), rel=1e-5)


@needs_compiler
def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "broken"
    broken.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && exit 0\n'
        "echo a first line >&2\necho it is out of order >&2\nexit 3\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    cache = tmp_path / "cache"
    with pytest.raises(BuildError, match="broken failed with 3: it is out of order"):
        load(cache)
    assert [path.name for path in cache.iterdir()] == ["lock"]


def test_flags_that_a_compiler_does_not_know_are_left_out(tmp_path: Path) -> None:
    compiler = tmp_path / "compiler"
    compiler.write_text('#!/bin/sh\ncase "$*" in *-funknown*) exit 1;; esac\n')
    compiler.chmod(0o755)
    assert compiling.known_to(str(compiler), ("-funknown", "-fknown")) == ["-fknown"]


@needs_compiler
def test_a_folder_that_cannot_be_written_is_no_harm(tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.touch()
    worker = run_a_model(occupied)
    _, log = worker.communicate(timeout=1200)
    assert worker.returncode == 0, log
    assert log.count("no CPU kernels") == 1


@needs_compiler
def test_sources_that_changed_beneath_a_process_are_not_built_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upgraded = tmp_path / "cpu"
    shutil.copytree(compiling.SOURCES, upgraded)
    (upgraded / "reflectors.cpp").write_text("// one more argument\n")
    monkeypatch.setattr(compiling, "SOURCES", upgraded)
    with pytest.raises(BuildError, match="changed since this process began; start it again"):
        load(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.so"))
