"""Strangers' ONNX files in a process of their own: facts or a sentence, and nothing left behind."""

import logging
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

from models.errors import GraphRefused
from models.graphs.documents import GraphLimits
from models.graphs.reading import graph_facts, read_graph
from search.uploads.graph_uploads import GraphFile, GraphReading, read_graph_file
from storage.errors import StoreFull
from tests.models.graphs.reading.altered_graphs import altered
from tests.models.graphs.reading.graph_files import (
    Classifier,
    chosen_by_rate,
    endless,
    exported,
    large_constant,
    model_of,
    port,
    small,
    tensor,
)
from tests.search.uploads.upload_cases import mutations
from tests.service.network_files import network


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where files are written; it must be as empty afterwards as it is before."""
    made = tmp_path / "written"
    made.mkdir()
    return made


def _read(folder: Path, content: bytes, **how) -> GraphFile:
    path = folder.parent / "file"
    path.write_bytes(content)
    return read_graph_file(path, out=folder / "out.onnx", **how)


def _refusal(folder: Path, content: bytes | onnx.ModelProto, **how) -> str:
    data = content if isinstance(content, bytes) else content.SerializeToString()
    with pytest.raises(GraphRefused) as refused:
        _read(folder, data, **how)
    assert not list(folder.iterdir())
    return str(refused.value)


def test_a_file_is_read_folded_and_described(folder: Path) -> None:
    import torch

    data = exported(Classifier(), torch.randn(2, 1, 12, 12), input_names=["image"])
    found = _read(folder, data)
    assert found.kept_because is None
    assert found.facts.inputs[0].name == "image"
    assert [entry.name for entry in folder.iterdir()] == ["out.onnx"]
    written = read_graph((folder / "out.onnx").read_bytes())
    assert graph_facts(written) == found.facts
    assert found.facts.file_bytes == (folder / "out.onnx").stat().st_size


def test_layers_and_the_refusal_of_none_reach_the_caller(folder: Path) -> None:
    found = _read(folder, network().SerializeToString(), to_compress=True)
    assert [(layer.name, layer.shape) for layer in found.layers] == [("W", (32, 64))]
    assert found.network.parameters == 32 * 64 + 64 * 5
    (folder / "out.onnx").unlink()
    message = _refusal(folder, small(), to_compress=True)
    assert message.startswith("nothing in the network can be compressed")


def test_a_refusal_reaches_the_caller_in_words(folder: Path) -> None:
    assert _refusal(folder, b"hello") == "the file is no ONNX model, or is damaged or cut off"
    model = small()
    model.graph.node[1].op_type = "Foo"
    assert "operators that are not supported: 'Foo'" in _refusal(folder, model)


def test_limits_reach_the_reader(folder: Path) -> None:
    limits = GraphReading(graph=GraphLimits(nodes=1))
    assert "more than 1 nodes" in _refusal(folder, small(), limits=limits)
    limits = GraphReading(graph=GraphLimits(file_bytes=100))
    assert _refusal(folder, small(), limits=limits).endswith("an ONNX file may have 100")


def test_fixed_inputs_reach_the_reader(folder: Path) -> None:
    data = chosen_by_rate().SerializeToString()
    assert "6 % of the weights' bytes" in _refusal(folder, data)
    found = _read(folder, data, fixed={"sr": 16000})
    assert [entry.name for entry in found.facts.inputs] == ["x"]
    assert "If" not in found.facts.operators
    assert "'sr' has the shape [2]" in _refusal_after(folder, data, fixed={"sr": [1, 2]})


def _refusal_after(folder: Path, data: bytes, **how) -> str:
    (folder / "out.onnx").unlink()
    return _refusal(folder, data, **how)


def test_forty_gigabytes_in_a_hundred_bytes_meet_the_limit_of_memory(folder: Path) -> None:
    message = _refusal(folder, large_constant())
    assert message == (
        "reading the file needs more memory than its limit of 4 GiB (4294967296 bytes)"
    )


def test_a_loop_without_end_meets_the_limit_of_time(folder: Path) -> None:
    assert len(endless().SerializeToString()) < 300
    message = _refusal(folder, endless(), limits=GraphReading(seconds=3))
    assert message == "reading the file took longer than its limit of 3 seconds"


def test_a_condition_without_end_meets_the_limit_of_time(folder: Path) -> None:
    """The condition of an `If` is computed too: by a chain of products that is long to compute."""
    size = 3000
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["m0"]),
        *(helper.make_node("MatMul", [f"m{k}", "m0"], [f"m{k + 1}"]) for k in range(400)),
    ]
    branch = helper.make_graph([helper.make_node("Relu", ["x"], ["o"])], "b", [], [port("o")])
    nodes += [
        helper.make_node("ReduceMax", ["m400"], ["top"], keepdims=0),
        helper.make_node("Less", ["top", "zero"], ["low"]),
        helper.make_node("If", ["low"], ["y"], then_branch=branch, else_branch=branch),
    ]
    model = model_of(nodes, tensors=[tensor("s", [size, size], np.int64), tensor("zero", 0)])
    message = _refusal(folder, model, limits=GraphReading(seconds=3))
    assert message == "reading the file took longer than its limit of 3 seconds"


def test_constants_that_outgrow_what_may_be_written_stay_as_they_are(folder: Path) -> None:
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["c"]),
        helper.make_node("Add", ["c", "one"], ["d"]),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    model = model_of(
        nodes,
        inputs=[port("x", ("b", 2000))],
        outputs=[port("y", ("b", 2000))],
        tensors=[tensor("s", [2000, 2000], np.int64), tensor("one", 1.0)],
    )
    # Above both: what the process may write, and what is looked at afterwards.
    limits = GraphReading(graph=GraphLimits(folded_bytes=100_000))
    found = _read(folder, model.SerializeToString(), limits=limits)
    assert found.kept_because
    assert found.facts.file_bytes < 1000
    assert [entry.name for entry in folder.iterdir()] == ["out.onnx"]


def test_the_model_is_tried_on_arrays_that_are_given(folder: Path) -> None:
    feeds = [folder.parent / "feed.npz"]
    np.savez(feeds[0], x=np.ones((2, 4), dtype=np.float32))
    assert _read(folder, small().SerializeToString(), feeds=feeds).kept_because is None
    np.savez(feeds[0], x=np.ones((2, 5), dtype=np.float32))
    message = _refusal_after(folder, small().SerializeToString(), feeds=feeds)
    assert message.startswith("onnxruntime does not run the graph on {'x': [2, 5]}: ")


@pytest.mark.parametrize("content", [b"", b"PK", b"no archive", b"\x93NUMPY\x01\x00"])
def test_arrays_that_cannot_be_read_are_refused(folder: Path, content: bytes) -> None:
    feed = folder.parent / "feed.npz"
    feed.write_bytes(content)
    assert "cannot be read" in _refusal(folder, small(), feeds=[feed])


def test_arrays_of_objects_are_no_arrays(folder: Path) -> None:
    feed = folder.parent / "feed.npz"
    np.savez(feed, x=np.array([{}], dtype=object))
    assert "cannot be read" in _refusal(folder, small(), feeds=[feed])


def test_a_crash_is_logged_and_said(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(GraphRefused, match=r"crashed \(exit status 1\); it may take 4 GiB"),
    ):
        read_graph_file(folder / "nowhere", out=folder / "out.onnx")
    (record,) = caplog.records
    assert "FileNotFoundError" in vars(record)["errors"]
    assert not list(folder.iterdir())


def test_the_caller_loads_neither_onnx_nor_its_runtime_and_the_reader_no_torch() -> None:
    code = (
        "import sys\n"
        "import search.uploads.graph_uploads\n"
        "assert not {'onnx', 'onnxruntime', 'torch'} & sys.modules.keys()\n"
        "import search.uploads.graph_reader\n"
        "assert 'onnx' in sys.modules and 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


SEEDS = [network(), small(), chosen_by_rate(), endless(), large_constant()]
FUZZED = st.one_of(
    st.sampled_from([model.SerializeToString() for model in SEEDS]).flatmap(mutations),
    st.sampled_from(SEEDS).flatmap(altered),
    st.sampled_from(SEEDS).flatmap(altered),
)


@settings(max_examples=200, deadline=None)
@given(FUZZED)
def test_any_bytes_are_a_model_or_a_sentence(content: bytes) -> None:
    try:
        model = read_graph(content)
    except GraphRefused:
        return
    # What was let pass says the same when it is read again.
    assert read_graph(model.SerializeToString()) == model
    assert graph_facts(model).model_dump_json()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(FUZZED)
def test_any_bytes_in_a_process_are_facts_or_a_sentence(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "written"
        folder.mkdir()
        limits = GraphReading(seconds=3)
        try:
            found = _read(folder, content, to_compress=True, limits=limits)
        except GraphRefused:
            assert not list(folder.iterdir())
            return
        assert [entry.name for entry in folder.iterdir()] == ["out.onnx"]
        assert graph_facts(read_graph((folder / "out.onnx").read_bytes())) == found.facts
        assert found.layers


def test_a_disk_that_is_full_is_not_the_files_fault(folder: Path) -> None:
    (folder / "out.onnx").symlink_to("/dev/full")
    with pytest.raises(StoreFull, match="no room"):
        _read(folder, small().SerializeToString())
    assert not list(folder.iterdir())
