"""The command line as a user or a script runs it: real processes against the real API."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from models import checkpoint
from service.api.events.schemas import Event
from service.commands.shown.following import LineView
from service.data_dir.server_file import ServerFile
from storage.records import StudyRecord, StudyState, TrialState
from tests.service.listening import listening
from tests.service.site import SMALL_SPEC, Site

COMMAND = (sys.executable, "-m", "service.cli")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site") / "data")
    with listening(site) as (host, port):
        ServerFile(url=f"http://{host}:{port}", pid=os.getpid()).write(site.settings.data_dir)
        yield site
    site.close()


@pytest.fixture(scope="module")
def study(site: Site) -> StudyRecord:
    """A finished study: two points on its front, one beaten trial, one that diverged."""
    study = site.study(name="finished [bold]study[/]")
    site.run(study)
    for number, (quality, throughput) in enumerate([(0.8, 10.0), (0.9, 5.0), (0.7, 4.0)]):
        site.trial(study, number, quality=quality, throughput=throughput, throughput_ratio=0.5)
    site.trial(study, 3, state=TrialState.INFEASIBLE, reason="the loss is NaN")
    site.finish(study)
    return study


def reflectory(
    site: Site | None, *arguments: object, given: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command against the site's server, which it finds through the data directory."""
    found = {} if site is None else {"REFLECTORY_DATA_DIR": str(site.settings.data_dir)}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        input=given,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "COLUMNS": "100", **found, **environment},
    )


def succeeded(run: subprocess.CompletedProcess[str]) -> str:
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_installed_command_is_this_one() -> None:
    (script,) = entry_points(group="console_scripts", name="reflectory")
    assert script.value == "service.cli:main"


def test_list_shows_studies_for_people_and_for_programs(site: Site, study: StudyRecord) -> None:
    table = succeeded(reflectory(site, "list"))
    assert study.id[:8] in table
    assert "[bold]" in table, "a name is text, not markup"
    listed = json.loads(succeeded(reflectory(site, "list", "--json")))
    assert study.id in [found["id"] for found in listed]
    assert json.loads(succeeded(reflectory(site, "list", "--json", "--state", "paused"))) == []


def test_the_server_is_named_by_option_environment_or_data_directory(
    site: Site, study: StudyRecord, tmp_path: Path
) -> None:
    place = ServerFile.read(site.settings.data_dir)
    assert place is not None
    for run in (
        reflectory(None, "list", "--server", place.url),
        reflectory(None, "list", REFLECTORY_SERVER=place.url),
        reflectory(None, "list", "--data-dir", site.settings.data_dir),
        reflectory(None, "list", "--server", place.url, REFLECTORY_SERVER="http://127.0.0.1:1"),
    ):
        assert study.id[:8] in succeeded(run)


def test_front_comes_as_table_csv_and_json(site: Site, study: StudyRecord) -> None:
    table = succeeded(reflectory(site, "front", study.id, COLUMNS="80"))
    assert "accuracy" in table
    rows = [line for line in table.splitlines() if " rnn " in line]
    # A sign before its number marks the recommended one.
    lines = [row.replace(">", " ").split() for row in rows]
    assert [line[0] for line in lines] == ["1", "0"], "best quality first"
    assert "0.50" in lines[0], "the ratio to the dense baseline"
    front = json.loads(succeeded(reflectory(site, "front", study.id, "--json")))
    assert [point["trial"] for point in front["points"]] == [0, 1]
    csv = succeeded(reflectory(site, "front", study.id, "--csv"))
    assert [row.split(",")[0] for row in csv.splitlines()] == ["trial", "0", "1"]
    assert reflectory(site, "front", study.id, "--csv", "--json").returncode == 2


def test_importance_comes_as_tables_and_json(site: Site) -> None:
    study = site.study()
    for number in range(3):
        site.trial(study, number, quality=0.5 + number / 1000, throughput=number + 1)
    few = succeeded(reflectory(site, "importance", study.id, COLUMNS="80"))
    assert "none: 3 trials have a value; it takes 10" in few
    for number in range(3, 13):
        site.trial(study, number, quality=0.5 + number % 2 / 4 + number / 1000, throughput=number)
    table = succeeded(reflectory(site, "importance", study.id, COLUMNS="100"))
    assert re.search(r"rnn.hidden_size +[01]\.\d{3} +13 +\+0\.\d\d", table)
    answer = json.loads(succeeded(reflectory(site, "importance", study.id, "--json")))
    quality, *others = answer["objectives"]
    assert (quality["objective"]["name"], quality["trials"], len(others)) == ("quality", 13, 2)


def test_download_brings_the_folder_of_a_trial(
    site: Site, study: StudyRecord, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "folder"
    run = reflectory(site, "download", study.id, 2, "--out", out, "--json")
    got = json.loads(succeeded(run))
    folder = out / "trial-2"
    assert {Path(file) for file in got["files"]} == set(folder.iterdir())
    files = {path.name for path in folder.iterdir()}
    assert {"model.safetensors", "model.onnx", "MODEL_CARD.md", "VERIFIED.json"} <= files
    assert {"report.json", "report.csv", "report.html"} <= files
    # These trials were stored without raw samples: the reason stands in all places.
    (reason,) = (one for one in got["missing"] if "trial-2/samples.json" in one)
    assert run.stderr == "", "a program finds it in the document"
    told = reflectory(site, "download", study.id, 2, "--out", tmp_path / "told")
    succeeded(told)
    assert reason in told.stderr
    card = (folder / "MODEL_CARD.md").read_text()
    assert f"`samples.json`: {reason.partition('samples.json: ')[2]}" in card
    loaded = checkpoint.load(folder / "model.safetensors")
    report = json.loads((folder / "report.json").read_text())
    assert report["totals"]["parameters"] == loaded.spec.parameter_count()


def test_download_without_a_trial_brings_the_front(
    site: Site, study: StudyRecord, tmp_path: Path
) -> None:
    ran = reflectory(site, "download", study.id, "--out", tmp_path)
    names = [Path(line).relative_to(tmp_path).as_posix() for line in succeeded(ran).splitlines()]
    assert names[0] == "front.csv"
    assert {name for name in names if name.endswith("model.safetensors")} == {
        "trial-0/model.safetensors",
        "trial-1/model.safetensors",
    }
    found = (path for path in tmp_path.rglob("*") if path.is_file())
    assert sorted(names) == sorted(path.relative_to(tmp_path).as_posix() for path in found)


def test_watch_tells_what_happened_line_by_line(site: Site, study: StudyRecord) -> None:
    lines = succeeded(reflectory(site, "watch", study.id)).splitlines()
    assert "study running" in lines
    assert any(re.match(r"trial 1 complete, rnn \w+, accuracy 0.9000, ", line) for line in lines)
    assert any("trial 3 infeasible" in line and "the loss is NaN" in line for line in lines)
    assert lines[-1] == f"study {study.id} is finished"
    events = [
        json.loads(line)
        for line in succeeded(reflectory(site, "watch", study.id, "--json")).splitlines()
    ]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))


def test_a_study_that_failed_is_no_success(site: Site) -> None:
    study = site.study()
    site.finish(study, StudyState.FAILED)
    assert reflectory(site, "watch", study.id).returncode == 1


def test_watch_on_a_terminal_is_live_and_ends_with_the_front(
    site: Site, study: StudyRecord
) -> None:
    output, status = on_a_terminal(site, "watch", study.id)
    assert status == 0
    assert "Pareto front: 2 points" in output
    assert "\x1b[" in output, "a live view moves the cursor"
    plain = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output)
    assert "3 complete" in plain
    assert plain.rstrip().endswith("is finished")


def on_a_terminal(site: Site, *arguments: str) -> tuple[str, int]:
    main, end = pty.openpty()
    environment = {"REFLECTORY_DATA_DIR": str(site.settings.data_dir), "TERM": "xterm"}
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=end, stderr=end, env={**os.environ, **environment}
    )
    os.close(end)
    pieces: list[bytes] = []
    try:
        while piece := os.read(main, 65536):
            pieces.append(piece)
    except OSError:
        pass  # Linux says so when the last process has closed the terminal.
    finally:
        os.close(main)
    return b"".join(pieces).decode(), process.wait(300)


def test_interrupting_a_watch_leaves_the_study_alone(site: Site) -> None:
    study = site.study()
    site.run(study)
    with subprocess.Popen(
        [*COMMAND, "watch", study.id, "--data-dir", str(site.settings.data_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        while "study running" not in process.stdout.readline():
            assert process.poll() is None
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
        assert process.wait(300) == 130
    assert f"reflectory watch {study.id}" in errors
    assert "Traceback" not in errors
    shown = json.loads(succeeded(reflectory(site, "list", "--json", "--state", "running")))
    assert study.id in [found["id"] for found in shown]


def test_submit_and_cancel(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SMALL_SPEC))
    study = json.loads(succeeded(reflectory(site, "submit", spec, "--json")))
    assert study["state"] == "queued"
    told = succeeded(reflectory(site, "submit", "-", given=json.dumps(SMALL_SPEC)))
    assert "dashboard" in told
    assert json.loads(succeeded(reflectory(site, "cancel", study["id"], "--yes", "--json")))["id"]


def test_a_dry_run_stores_nothing(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SMALL_SPEC))
    before = succeeded(reflectory(site, "list", "--json"))
    answer = json.loads(succeeded(reflectory(site, "submit", spec, "--dry-run", "--json")))
    assert len(answer["candidates"]) == 2
    assert "hidden_size" in succeeded(reflectory(site, "submit", spec, "--dry-run"))
    assert succeeded(reflectory(site, "list", "--json")) == before


def test_catalog_names_every_variant(site: Site) -> None:
    catalog = json.loads(succeeded(reflectory(site, "catalog", "--json")))
    table = succeeded(reflectory(site, "catalog", COLUMNS="160"))
    groups = ("architectures", "parametrizations", "tasks")
    for group in (*groups, "samplers", "stopping_rules", "exports"):
        assert catalog[group]
        for entry in catalog[group]:
            assert entry["kind"] in table
            assert entry["schema"]["properties"]


def test_wrong_usage_is_2(site: Site, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"task": ')
    a_list = tmp_path / "list.json"
    a_list.write_text("[]")
    for arguments in (
        ["no-such-command"],
        ["watch"],
        ["front", "a", "b", "c"],
        ["download", "a", "minus-one"],
        ["submit", tmp_path / "missing.json"],
        ["submit", broken],
        ["submit", a_list],
        ["serve", "--port", "65536"],
    ):
        run = reflectory(site, *arguments)
        assert run.returncode == 2, arguments
        assert "Traceback" not in run.stderr
    assert reflectory(site, "serve", REFLECTORY_PORT="eighty").returncode == 2


def test_a_refusal_is_3_and_names_the_fault(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({**SMALL_SPEC, "epochz": 3}))
    run = reflectory(site, "submit", spec)
    assert run.returncode == 3
    assert "epochz" in run.stderr
    run = reflectory(site, "submit", spec, "--json")
    assert run.returncode == 3
    told = json.loads(run.stderr)
    assert [error["path"] for error in told["errors"]] == ["epochz"]
    assert set(told) == {"type", "title", "status", "detail", "errors"}
    for command in ("watch", "front", "cancel", "download"):
        assert reflectory(site, command, "no-such-study").returncode == 3, command


def test_a_number_that_json_does_not_have_is_a_refusal(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text('{"task": {"kind": "digits"}, "limits": {"min_throughput_ratio": NaN}}')
    for words in (("submit", spec), ("submit", spec, "--dry-run")):
        run = reflectory(site, *words)
        assert run.returncode == 3
        assert "limits.min_throughput_ratio: nan" in run.stderr
        assert "allowed are finite numbers" in run.stderr
        assert "Traceback" not in run.stderr


def test_a_key_that_is_given_twice_is_named(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    for text, key in (
        ('{"task": {"kind": "mnist"}, "task": {"kind": "digits"}}', "task"),
        ('{"task": {"kind": "digits"}, "budget": {"trials": 1, "trials": 2}}', "trials"),
    ):
        spec.write_text(text)
        run = reflectory(site, "submit", spec)
        assert run.returncode == 2
        assert f'"{key}"' in run.stderr
        assert "twice" in run.stderr


def test_no_server_is_4(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}"
    run = reflectory(None, "list", "--server", nobody)
    assert run.returncode == 4
    assert nobody in run.stderr
    run = reflectory(None, "list", "--server", nobody, "--json")
    assert run.returncode == 4
    assert nobody in json.loads(run.stderr)["detail"]
    # A server that was killed leaves its file behind.
    ServerFile(url=nobody, pid=1).write(tmp_path)
    assert reflectory(None, "list", "--data-dir", tmp_path).returncode == 4
    assert reflectory(None, "list", "--server", "nonsense").returncode == 4


def test_keys_are_never_asked_for_as_arguments() -> None:
    for command in ("list", "submit", "serve"):
        assert "--key" not in succeeded(reflectory(None, command, "--help"))


@pytest.mark.parametrize(
    ("trial", "line"),
    [
        (
            {"architecture": "network", "parametrization": "bits", "quality": 0.000238},
            "trial 5 complete, bits, quality 0.000238, 290,551 bytes",
        ),
        (
            {"architecture": "rnn", "parametrization": "dense", "quality": 0.5},
            "trial 5 complete, rnn dense, quality 0.5000, 309,644 parameters, 290,551 bytes",
        ),
    ],
)
def test_a_trial_is_told_in_a_line(trial: dict[str, Any], line: str) -> None:
    lines: list[str] = []
    known = {"trial": 5, "state": "complete", "parameters": 309_644, "bytes": 290_551}
    LineView(write=lines.append).event(Event(number=1, kind="trial", payload={**known, **trial}))
    assert lines == [line]


@pytest.mark.parametrize(
    ("reason", "lines"),
    [
        ("superseded before it was trained", 0),
        ("cancelled by ada", 1),
        (None, 1),
    ],
)
def test_a_suggestion_that_was_never_trained_has_no_line(reason: str | None, lines: int) -> None:
    found: list[str] = []
    trial = {"trial": 5, "state": "cancelled", "reason": reason}
    model = {"architecture": "rnn", "parametrization": "dense", "parameters": 309_644}
    LineView(write=found.append).event(Event(number=1, kind="trial", payload={**trial, **model}))
    assert len(found) == lines


def test_a_download_is_told_at_most_once_per_tenth() -> None:
    lines: list[str] = []
    view = LineView(write=lines.append)
    for received in range(0, 1001, 10):
        payload = {"file": "train.gz", "received": received, "total": 1000}
        view.event(Event(number=received + 1, kind="download", payload=payload))
    assert len(lines) == 11
    assert lines[-1] == "download train.gz: 1,000 of 1,000 bytes"
