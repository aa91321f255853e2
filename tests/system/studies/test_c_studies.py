"""Studies for a C file on one thread: measured in C, and taken away as folders that run."""

import io
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from models.exports.c.toolchain import compiler
from search.measuring.throughput import ThroughputRecord
from tests.service.running import Server, wait_until

MOST_BYTES = 6500
SPEC: dict[str, Any] = {
    "task": {"kind": "digits", "layout": "rows", "train_samples": 200},
    "architectures": ["gru"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": {"low": 8, "high": 24, "step": 8}, "model.bits": 32},
    "objectives": ["quality", "bytes", "latency"],
    "throughput": {"runtime": "c", "batch_size": 1},
    "export": {"file": "c"},
    "limits": {"bytes": MOST_BYTES, "state_bytes": 1500, "latency_seconds": 60.0},
    "sampler": {"kind": "known_cost", "startup_trials": 1},
    "early_stopping": {"kind": "pareto_gain", "startup_trials": 2},
    "budget": {"trials": 3, "epochs": 2},
    "seed": 5,
}


@pytest.fixture(scope="module")
def ended(server: Server) -> dict[str, Any]:
    return server.wait(server.submit(SPEC))


def folder_of(server: Server, study: str, number: int, place: Path) -> Path:
    """A point's folder, unpacked in an empty directory."""

    def made() -> bytes | None:
        answer = server.http.get(f"/v1/studies/{study}/trials/{number}/folder")
        assert answer.status_code in (200, 202), answer.text
        return answer.content if answer.status_code == 200 else None

    content = wait_until(made, what=f"the folder of trial {number}")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        archive.extractall(place)
    return place / f"trial-{number}"


def returns_0(place: Path, *command: str) -> None:
    ran = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, (command, ran.stdout, ran.stderr)


def test_it_comes_to_a_front_of_what_was_measured_in_c(
    server: Server, ended: dict[str, Any]
) -> None:
    assert ended["state"] == "finished", ended["state_reason"]
    front = server.get(f"/v1/studies/{ended['id']}/front")
    assert [info["name"] for info in front["objectives"]] == ["quality", "bytes", "latency"]
    assert front["reference_point"]["bytes"] == MOST_BYTES
    assert front["hypervolume"] > 0
    assert front["points"]
    for point in front["points"]:
        assert point["runtime"] == "c"
        assert point["values"]["latency"] == point["latency_p50"] <= point["latency_p99"]
        assert point["values"]["bytes"] <= MOST_BYTES
        trial = server.get(f"/v1/studies/{ended['id']}/trials/{point['trial']}")
        fields = trial["throughput"]["record"]
        record = ThroughputRecord.model_validate(
            {name: value for name, value in fields.items() if name != "machine"}
        )
        assert (record.runtime, record.backend, record.threads) == ("c", ("c",), 1)
        assert record.dense_backend == ("c",)
        assert record.compiler


def test_every_point_is_a_folder_that_runs_elsewhere(
    server: Server, ended: dict[str, Any], tmp_path: Path
) -> None:
    """With numpy, onnxruntime and a C compiler alone, and of the size that the front tells."""
    points = server.get(f"/v1/studies/{ended['id']}/front")["points"]
    assert points
    for point in points:
        place = folder_of(server, ended["id"], point["trial"], tmp_path)
        returns_0(place, sys.executable, "-I", "example.py")
        made = ("-std=c99", "-O2", "example.c", "model.c", "-o", "example")
        returns_0(place, compiler(), *made)
        returns_0(place, str(place / "example"))
        tables, state = re.findall(
            r"Tables of (\d+) bytes, a state of (\d+)", (place / "model.h").read_text()
        )[0]
        assert point["values"]["bytes"] == int(tables)
        assert int(state) <= SPEC["limits"]["state_bytes"]
        made = server.get(f"/v1/studies/{ended['id']}/trials/{point['trial']}")["bytes"]
        assert made["c_flash"] > int(tables)
        assert made["c_state"] == int(state)


def test_files_have_the_name_that_is_asked_for(
    server: Server, ended: dict[str, Any], tmp_path: Path
) -> None:
    """So that a program may have several models: both are linked into one."""
    point = server.get(f"/v1/studies/{ended['id']}/front")["points"][0]["trial"]
    path = f"/v1/studies/{ended['id']}/trials/{point}/c"

    def made(**query: str) -> bytes | None:
        answer = server.http.get(path, params=query)
        assert answer.status_code in (200, 202), answer.text
        return answer.content if answer.status_code == 200 else None

    for query in ({}, {"name": "digits_2"}):
        content = wait_until(lambda query=query: made(**query), what="the C files")
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            archive.extractall(tmp_path)
    texts = [(tmp_path / f"{name}.c").read_text() for name in ("model", "digits_2")]
    assert (
        texts[1] != texts[0] == texts[1].replace("digits_2", "model").replace("DIGITS_2", "MODEL")
    )
    both = "int main(void) { model_state a; digits_2_state b; model_reset(&a); digits_2_reset(&b);"
    (tmp_path / "both.c").write_text(
        f'#include "model.h"\n#include "digits_2.h"\n{both} return 0; }}\n'
    )
    returns_0(tmp_path, compiler(), "-std=c99", "both.c", "model.c", "digits_2.c", "-o", "both")
    for wrong in ("2digits", "int", "a b", "../x", ""):
        answer = server.http.get(path, params={"name": wrong})
        assert answer.status_code == 422
        (fault,) = answer.json()["errors"]
        assert fault["path"] == "name"
        assert repr(wrong) in fault["message"]
        assert "allowed are a letter and then letters, digits and _" in fault["message"]


def test_what_is_over_a_limit_on_tables_or_state_is_refused_before_it_is_trained(
    server: Server,
) -> None:
    spec = {
        **SPEC,
        "objectives": ["quality", "parameters"],
        "throughput": {},
        "sampler": {"kind": "random"},
        "early_stopping": None,
        "limits": {"bytes": 5000, "state_bytes": 300},
        "budget": {"trials": 1, "epochs": 1},
        "seed": 6,
    }
    study = server.wait(server.submit(spec))
    trials = server.trials(study["id"])
    refused = [trial for trial in trials if trial["outcome"] == "infeasible"]
    assert any("bytes of the file are over the limit of 5000" in one["reason"] for one in refused)
    assert any("bytes of state are over the limit of 300" in one["reason"] for one in refused)
    assert all(one["attempts"] == [] for one in refused)


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        (
            {"export": {"file": "c", "form": "loop"}},
            "export.form",
            "'loop' is of ONNX files, and file is 'c'; allowed is 'auto'",
        ),
        ({"limits": {"bytes": 100}}, "limits.bytes", "no candidate has a file of 100 bytes"),
        ({"limits": {"state_bytes": 100}}, "limits.state_bytes", "the smallest, gru"),
    ],
)
def test_what_cannot_be_is_a_fault_at_its_path(
    server: Server, change: dict[str, Any], path: str, words: str
) -> None:
    for query in ({"dry_run": "true"}, {}):
        answer = server.http.post("/v1/studies", params=query, json={**SPEC, **change})
        assert answer.status_code == 422, answer.text
        faults = {fault["path"]: fault["message"] for fault in answer.json()["errors"]}
        assert words in faults[path], faults


def test_a_server_without_a_compiler_fails_the_study_with_the_reason(tmp_path: Path) -> None:
    bare = {"CC": "no-such-compiler", "REFLECTORY_SLOT_WAIT_SECONDS": "0"}
    server = Server(tmp_path / "data", workers=1, environment=bare).start()
    try:
        study = server.wait(server.submit(SPEC))
        assert study["state"] == "failed"
        assert "throughput.runtime 'c' runs on, with a C compiler" in study["state_reason"]
    finally:
        server.close()
