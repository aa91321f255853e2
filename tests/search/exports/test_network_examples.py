"""The program beside a compressed network runs it on as many samples as there are."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from search.exports import network_folder

AT_ONCE = 2


def _folder(place: Path, *, first: str | int, each: bool) -> Path:
    """A matrix product as a network, whose calls take 2 samples, one or any number."""
    rows, columns = 4, 3
    weight = numpy_helper.from_array(np.ones((rows, columns), np.float32), "W")
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, rows])
    answer = helper.make_tensor_value_info("y", TensorProto.FLOAT, [first, columns])
    node = helper.make_node("MatMul", ["x", "W"], ["y"])
    graph = helper.make_graph([node], "g", [given], [answer], [weight])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), place / "model.onnx")
    shutil.copy(Path(network_folder.__file__).parent / "run_network.py", place / "example.py")
    data = {"arrays": {"x": "x"}, "zeros": [], "each": each}
    (place / "data.json").write_text(json.dumps(data))
    return place


def _run(place: Path, x: np.ndarray) -> subprocess.CompletedProcess[str]:
    np.savez(place / "data.npz", x=x.astype(np.float32))
    return subprocess.run(
        [sys.executable, "example.py", "data.npz"],
        cwd=place,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("samples", [1, 2, 3, 5])
@pytest.mark.parametrize("each", [True, False], ids=["one by one", "together"])
def test_there_may_be_fewer_samples_than_are_shown(
    tmp_path: Path, samples: int, each: bool
) -> None:
    place = _folder(tmp_path, first="batch", each=each)
    ran = _run(place, np.ones((samples, 2, 4) if each else (samples, 4)))
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("sample ") == min(samples, 3)
    assert "[0" not in ran.stdout


def test_too_few_samples_for_a_call_are_named(tmp_path: Path) -> None:
    ran = _run(_folder(tmp_path, first=AT_ONCE, each=False), np.ones((1, 4)))
    assert ran.returncode == 1
    assert "data.npz: 'x' has 1 samples; a call takes 2" in ran.stderr
