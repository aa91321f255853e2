"""Studies for the file that is taken away: its bytes and its latency, where it will run."""

import csv
import html
import io
import re
from typing import Any

import pytest

from search.measuring.throughput import ThroughputRecord
from search.measuring.timing import LATENCY_CALLS
from tests.service.running import Server, command, wait_until

SMALL: dict[str, Any] = {
    "task": {"kind": "digits", "layout": "rows", "train_samples": 200},
    "architectures": ["rnn", "gru"],
    "parametrizations": ["dense", "low_rank"],
    "space": {
        "hidden_size": {"low": 8, "high": 16},
        "rnn.activation": "tanh",
        "gru.reset": "after",
    },
    "objectives": ["quality", "bytes", "latency"],
    "throughput": {"runtime": "onnxruntime", "batch_size": 1},
    "sampler": {"kind": "known_cost", "startup_trials": 3},
    "early_stopping": {"kind": "pareto_gain", "startup_trials": 2},
    "budget": {"trials": 6, "epochs": 3},
    "seed": 4,
}


@pytest.fixture(scope="module")
def ended(server: Server) -> dict[str, Any]:
    return server.wait(server.submit(SMALL))


def downloaded(server: Server, path: str) -> bytes:
    def made() -> bytes | None:
        answer = server.http.get(path)
        assert answer.status_code in (200, 202), answer.text
        return answer.content if answer.status_code == 200 else None

    return wait_until(made, what=path)


def test_a_study_for_bytes_and_latency_comes_to_a_front(
    server: Server, ended: dict[str, Any]
) -> None:
    assert ended["state"] == "finished", ended["state_reason"]
    front = server.get(f"/v1/studies/{ended['id']}/front")
    assert [info["name"] for info in front["objectives"]] == ["quality", "bytes", "latency"]
    assert front["hypervolume"] > 0
    assert front["reference_point"].keys() == {"quality", "bytes", "latency"}
    for point in front["points"]:
        assert 0 < point["latency_p50"] <= point["latency_p99"]
        assert point["values"]["latency"] == point["latency_p50"]
        assert point["runtime"] == "onnxruntime"
        assert point["file_form"] in ("node", "loop")


def test_bytes_are_those_of_the_file_that_is_downloaded(
    server: Server, ended: dict[str, Any]
) -> None:
    path = f"/v1/studies/{ended['id']}"
    points = server.get(f"{path}/front")["points"]
    assert points
    for point in points:
        content = downloaded(server, f"{path}/trials/{point['trial']}/onnx")
        assert point["values"]["bytes"] == len(content)


def test_a_record_says_what_ran_both_models(server: Server, ended: dict[str, Any]) -> None:
    point = server.get(f"/v1/studies/{ended['id']}/front")["points"][0]
    trial = server.get(f"/v1/studies/{ended['id']}/trials/{point['trial']}")
    record = ThroughputRecord.model_validate(
        {name: value for name, value in trial["throughput"]["record"].items() if name != "machine"}
    )
    assert (record.runtime, record.backend) == ("onnxruntime", ("onnxruntime",))
    assert record.dense_backend == ("onnxruntime",)
    assert record.runtime_version
    assert record.calls is not None
    assert record.calls >= LATENCY_CALLS


def test_the_terminals_tables_have_the_columns(server: Server, ended: dict[str, Any]) -> None:
    for call, words in (
        (("front", ended["id"]), ("bytes", "latency", "p99", "in onnxruntime")),
        (("trials", ended["id"]), ("bytes", "latency")),
        (("trials", ended["id"], "0"), ("bytes", "latency p99")),
    ):
        ran = command(str(server.http.base_url), *call)
        assert ran.returncode == 0, ran.stderr
        assert all(word in ran.stdout for word in words), ran.stdout


def test_the_csv_has_the_columns(server: Server, ended: dict[str, Any]) -> None:
    path = f"/v1/studies/{ended['id']}"
    for table in ("front", "trials"):
        text = server.http.get(f"{path}/{table}", params={"format": "csv"}).text
        rows = list(csv.DictReader(io.StringIO(text)))
        assert {"bytes", "latency_p50", "latency_p99", "test_quality"} <= rows[0].keys()
        assert all(int(row["bytes"]) > 0 for row in rows)
        if table == "front":
            # The default space of a study about bytes searches the bits.
            told = {row["trial"]: row["bits"] for row in rows}
            points = server.get(f"{path}/front")["points"]
            assert told == {str(p["trial"]): str(p["bits"]) for p in points}
            assert all(p["hyperparameters"].get("model.bits", 32) == p["bits"] for p in points)


def test_the_page_and_the_report_have_the_columns(server: Server, ended: dict[str, Any]) -> None:
    for page in (f"/studies/{ended['id']}", f"/v1/studies/{ended['id']}/report"):
        text = server.http.get(page).text
        for heading in ("Bytes", "Latency p50", "p99", "Form", "in onnxruntime"):
            assert heading in text, (page, heading)
    sorted_page = server.http.get(f"/studies/{ended['id']}", params={"sort": "bytes"})
    assert sorted_page.status_code == 200
    figure = server.get(f"/v1/studies/{ended['id']}/figures/front?x=bytes&y=latency")
    axes = [figure["layout"][axis]["title"]["text"] for axis in ("xaxis", "yaxis")]
    assert [name.partition(",")[0].partition(" ")[0] for name in axes] == ["bytes", "latency"]
    assert figure["layout"]["yaxis"]["type"] == "log"


def test_the_page_of_a_study_begins_with_its_own_objectives(
    server: Server, ended: dict[str, Any]
) -> None:
    page = server.http.get(f"/studies/{ended['id']}").text
    assert '<option value="bytes" selected>' in page
    assert '<option value="quality" selected>' in page


def test_the_page_of_a_trial_lists_every_file(server: Server, ended: dict[str, Any]) -> None:
    path = f"/v1/studies/{ended['id']}"
    point = server.get(f"{path}/front")["points"][0]
    downloaded(server, f"{path}/trials/{point['trial']}/onnx")
    trial = server.get(f"{path}/trials/{point['trial']}")
    text = server.http.get(f"/studies/{ended['id']}/trials/{point['trial']}").text
    assert re.search(r"onnxruntime [\d.]+: (\d+) of \1 answers on validation data", text)
    for size in trial["bytes"].values():
        assert f"{size:,}" in text
    for reason in trial["missing"].values():
        assert html.escape(reason) in text


def test_a_checkpoint_is_as_large_as_it_was_said_to_be(server: Server) -> None:
    spec = {
        **SMALL,
        "objectives": ["quality", "bytes"],
        "export": {"file": "checkpoint"},
        "budget": {"trials": 3, "epochs": 2},
        "early_stopping": None,
    }
    study = server.wait(server.submit(spec))
    trials = [t for t in server.trials(study["id"]) if t["outcome"] == "complete"]
    assert len(trials) == 3
    for trial in trials:
        content = server.http.get(trial["links"]["checkpoint"]).content
        assert trial["values"]["bytes"] == len(content)


def test_what_is_over_a_limit_is_refused_before_it_is_trained(server: Server) -> None:
    wide = {**SMALL, "space": {**SMALL["space"], "hidden_size": {"low": 8, "high": 64}}}
    limits = {"bytes": 8000, "state_bytes": 4 * 40}
    spec = {**wide, "objectives": ["quality", "parameters"], "sampler": {"kind": "random"}}
    study = server.wait(
        server.submit({**spec, "limits": limits, "early_stopping": None, "throughput": {}})
    )
    trials = server.trials(study["id"])
    refused = [trial for trial in trials if trial["outcome"] == "infeasible"]
    assert any("bytes of the file are over the limit of 8000" in t["reason"] for t in refused)
    assert any("bytes of state are over the limit of 160" in t["reason"] for t in refused)
    assert all(trial["attempts"] == [] for trial in refused)
    complete = [trial for trial in trials if trial["outcome"] == "complete"]
    assert complete
    for trial in complete:
        assert trial["values"]["bytes"] <= 8000
        assert trial["hyperparameters"][f"{trial['architecture']}.hidden_size"] <= 40


def test_what_is_too_slow_is_refused_after_it_is_measured(server: Server) -> None:
    """No call takes less than a nanosecond."""
    spec = {**SMALL, "limits": {"latency_seconds": 1e-9}, "budget": {"trials": 1, "epochs": 1}}
    study = server.wait(server.submit({**spec, "early_stopping": None}))
    assert (study["state"], study["state_reason"]) == ("finished", "nothing_feasible")
    for trial in server.trials(study["id"]):
        assert trial["outcome"] == "infeasible"
        assert "is over latency_seconds 1e-09" in trial["reason"]
        assert trial["attempts"] == []


def test_what_torch_does_not_have_is_refused_with_the_reason(server: Server) -> None:
    spec = {
        **SMALL,
        "architectures": ["gru"],
        "space": {"hidden_size": 8, "gru.reset": {"options": ["before", "after"]}},
        "throughput": {"runtime": "torch"},
        "sampler": {"kind": "random"},
        "early_stopping": None,
        "objectives": ["quality", "throughput"],
        "budget": {"trials": 4, "epochs": 1},
    }
    study = server.wait(server.submit(spec))
    assert study["state"] == "finished"
    trials = server.trials(study["id"])
    for trial in trials:
        if trial["hyperparameters"]["gru.reset"] == "before":
            assert trial["outcome"] == "infeasible"
            assert "the runtime torch does not run it" in trial["reason"]
            assert "'after'" in trial["reason"]
        else:
            assert trial["outcome"] == "complete"
    assert {trial["outcome"] for trial in trials} == {"complete", "infeasible"}


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        (
            {
                "throughput": {"runtime": "onnxruntime", "mode": "training"},
                "objectives": ["quality"],
            },
            "throughput.runtime",
            "'onnxruntime' runs no training; allowed are reflectory, torch",
        ),
        (
            {"resources": {"device": "cuda"}},
            "throughput.runtime",
            "'onnxruntime' does not run on cuda; allowed are reflectory, torch",
        ),
        (
            {"throughput": {"runtime": "c", "mode": "training"}, "objectives": ["quality"]},
            "throughput.runtime",
            "'c' runs no training; allowed are reflectory, torch",
        ),
        (
            {"throughput": {"runtime": "c"}, "resources": {"device": "cuda"}},
            "throughput.runtime",
            "'c' does not run on cuda; allowed are reflectory, torch",
        ),
        (
            {"throughput": {"runtime": "c", "threads": 2}},
            "throughput.threads",
            "'c' runs on no 2 threads; allowed is 1, or another throughput.runtime",
        ),
        (
            {"throughput": {"mode": "training"}},
            "objectives.2",
            "throughput.mode is 'training'; allowed is 'inference'",
        ),
        (
            {
                "throughput": {"mode": "training"},
                "objectives": ["quality"],
                "limits": {"latency_seconds": 1.0},
            },
            "limits.latency_seconds",
            "throughput.mode is 'training'; allowed is 'inference'",
        ),
        (
            {"throughput": {"runtime": "tensorrt"}},
            "throughput.runtime",
            "'reflectory', 'onnxruntime', 'c' or 'torch'",
        ),
        (
            {"throughput": {"runtime": "torch"}, "space": {"bits": {"options": [32, 8, 4]}}},
            "throughput.runtime",
            "'torch' has numbers of 32 bits alone, and model.bits may be 4; allowed are "
            "reflectory, onnxruntime, c, or a space with model.bits 32",
        ),
        ({"export": {"file": "pickle"}}, "export.file", "'onnx', 'checkpoint' or 'c'"),
        ({"limits": {"state_bytes": 31}}, "limits.state_bytes", "keeps 32"),
        ({"limits": {"bytes": 100}}, "limits.bytes", "no candidate has a file of 100 bytes"),
    ],
)
def test_what_cannot_be_is_a_fault_at_its_path(
    server: Server, change: dict[str, Any], path: str, words: str
) -> None:
    spec = {**SMALL, "early_stopping": None, **change}
    for query in ({"dry_run": "true"}, {}):
        answer = server.http.post("/v1/studies", params=query, json=spec)
        assert answer.status_code == 422, answer.text
        faults = {fault["path"]: fault["message"] for fault in answer.json()["errors"]}
        assert words in faults[path], faults


def test_the_smallest_size_that_a_fault_names_is_one_that_is_had(server: Server) -> None:
    spec = {**SMALL, "early_stopping": None, "limits": {"bytes": 100}}
    (fault,) = server.http.post("/v1/studies", json=spec).json()["errors"]
    least = int(fault["message"].rsplit(" ", 1)[1])
    for limit, status in ((least - 1, 422), (least, 200)):
        limits = {"bytes": limit}
        answer = server.http.post(
            "/v1/studies", params={"dry_run": "true"}, json={**spec, "limits": limits}
        )
        assert answer.status_code == status, answer.text
