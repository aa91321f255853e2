"""Commands that bring what studies found, over networks that break and for people who watch."""

import json
import os
import signal
import socket
import subprocess
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from httpx2 import Response

from service.client import Client, Damaged, Refused
from service.client.transport.steps import Send
from service.data_dir.server_file import ServerFile
from storage.endings import TrialCause
from storage.records import StudyRecord, TrialOutcome, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.attempt_logs import AttemptLogs
from storage.repositories.trials import Trials
from tests.service.commands.test_cli import COMMAND, on_a_terminal, reflectory, succeeded
from tests.service.listening import listening
from tests.service.relay import Relay
from tests.service.site import Site, now


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site") / "data")
    with listening(site) as (host, port):
        ServerFile(url=f"http://{host}:{port}", pid=os.getpid()).write(site.settings.data_dir)
        yield site
    site.close()


@pytest.fixture(scope="module")
def address(site: Site) -> tuple[str, int]:
    place = ServerFile.read(site.settings.data_dir)
    assert place is not None
    host, _, port = place.url.removeprefix("http://").partition(":")
    return host, int(port)


@pytest.fixture(scope="module")
def study(site: Site) -> StudyRecord:
    study = site.study(name="[bold]results[/]")
    site.run(study)
    for number, (quality, throughput) in enumerate([(0.8, 10.0), (0.9, 5.0)]):
        site.trial(study, number, quality=quality, throughput=throughput)
    site.trial(study, 2, state=TrialState.INFEASIBLE, reason="the loss is [NaN]")
    return study


def test_trials_come_as_table_csv_and_json(site: Site, study: StudyRecord) -> None:
    table = succeeded(reflectory(site, "trials", study.id))
    assert "accuracy" in table
    assert "the loss is [NaN]" in table, "a reason is text, not markup"
    bad = json.loads(
        succeeded(reflectory(site, "trials", study.id, "--outcome", "infeasible", "--json"))
    )
    assert [trial["number"] for trial in bad] == [2]
    csv = succeeded(reflectory(site, "trials", study.id, "--csv"))
    assert len(csv.splitlines()) == 4
    for wrong in (("--csv", "--json"), ("--outcome", "odd"), ("0", "--outcome", "complete")):
        assert reflectory(site, "trials", study.id, *wrong).returncode == 2


def test_one_trial_is_shown_with_its_curve(site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    site.epoch(study, 0, 1)
    told = succeeded(reflectory(site, "trials", study.id, "0"))
    assert "Learning curve" in told
    assert "0.5000" in told
    trial = json.loads(succeeded(reflectory(site, "trials", study.id, "0", "--json")))
    assert [epoch["validation"] for epoch in trial["metrics"]] == [0.5]
    assert reflectory(site, "trials", study.id, "7").returncode == 3


def test_show_tells_where_a_study_stands(site: Site, study: StudyRecord) -> None:
    told = succeeded(reflectory(site, "show", study.id))
    assert "[bold]results[/]" in told
    assert "2 complete" in told
    assert json.loads(succeeded(reflectory(site, "show", study.id, "--json")))["id"] == study.id


def test_a_report_is_written_where_it_is_asked_for_and_may_be_opened(
    site: Site, study: StudyRecord, tmp_path: Path
) -> None:
    out, opened = tmp_path / "digits.html", tmp_path / "opened"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    run = reflectory(site, "report", study.id, "--out", out, "--open", BROWSER=f"{browser} %s")
    assert succeeded(run) == f"{out}\n"
    assert "Plotly.react" in out.read_text()
    assert opened.read_text().strip() == out.as_uri()
    told = json.loads(succeeded(reflectory(site, "report", study.id, "--out", out, "--json")))
    assert told == {"file": str(out)}
    assert reflectory(site, "report", "no-such-study", "--out", out).returncode == 3


def test_devices_need_a_coordinator(site: Site) -> None:
    assert json.loads(succeeded(reflectory(site, "devices", "--json"))) == []
    assert "no coordinator" in succeeded(reflectory(site, "devices"))


def test_a_bundle_is_one_whole_zip_file(site: Site, study: StudyRecord, tmp_path: Path) -> None:
    run = reflectory(site, "download", study.id, "--bundle", "--out", tmp_path, "--json")
    assert json.loads(succeeded(run))["files"] == [str(tmp_path / f"{study.id}.zip")]
    with zipfile.ZipFile(tmp_path / f"{study.id}.zip") as bundle:
        assert bundle.testzip() is None
        assert {"front.csv", "trial-1/model.safetensors"} <= set(bundle.namelist())
    assert reflectory(site, "download", study.id, 1, "--bundle").returncode == 2


def test_a_bundle_that_is_cut_is_fetched_again_and_a_damaged_one_is_not_kept(
    site: Site, address: tuple[str, int], study: StudyRecord, tmp_path: Path
) -> None:
    out = tmp_path / "front.zip"
    with Relay(address) as relay, Client(relay.url, patience=20) as client:
        relay.cuts.extend([0, 1500])
        got = client.bundle(study.id, out)
        assert got.size == out.stat().st_size
        assert not relay.cuts
    out.unlink()
    with Relay(address) as relay, Client(relay.url) as client:
        relay.damage_at = 3000
        with pytest.raises(Damaged, match=r"front\.zip"):
            client.bundle(study.id, out)
    assert list(tmp_path.iterdir()) == []


def test_points_that_were_not_kept_are_told_in_json(site: Site, tmp_path: Path) -> None:
    study = site.study()
    site.run(study)
    for number, (quality, throughput) in enumerate([(0.8, 10.0), (0.9, 5.0)]):
        site.trial(study, number, quality=quality, throughput=throughput)
    with site.database.write() as session:
        roles = ArtifactRows(session).of_trial(study.id, 1)
        ArtifactRows(session).unlink(study.id, {1: list(roles)})
    run = reflectory(site, "download", study.id, "--out", tmp_path, "--json")
    document = json.loads(succeeded(run))
    reason = "trial 1 has no checkpoint: the study's retention did not keep it"
    assert reason in document["missing"]
    assert reason not in run.stderr
    assert not (tmp_path / "trial-1").exists()
    run = reflectory(site, "download", study.id, "--out", tmp_path)
    assert succeeded(run)
    assert reason in " ".join(run.stderr.split())


def test_a_download_that_is_cut_goes_on(
    site: Site, address: tuple[str, int], study: StudyRecord, tmp_path: Path
) -> None:
    with Relay(address) as relay:
        relay.cuts.extend([0, 900, 1200])
        run = reflectory(None, "download", study.id, 1, "--out", tmp_path, "--server", relay.url)
        assert succeeded(run)
        assert not relay.cuts
    whole = tmp_path / "whole"
    succeeded(reflectory(site, "download", study.id, 1, "--out", whole))
    files = [path for path in whole.rglob("*") if path.is_file()]
    assert files
    for file in files:
        assert (tmp_path / file.relative_to(whole)).read_bytes() == file.read_bytes()


def test_a_server_that_goes_away_while_a_file_is_made_ends_a_download(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        # It takes connections, and hangs up.
        threading.Thread(target=_hang_up, args=(listener,), daemon=True).start()
        server = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command = [*COMMAND, "download", "0123456789ab", "0", "--out", str(tmp_path)]
        run = subprocess.run(
            [*command, "--server", server],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert run.returncode == 4, run.stderr
    assert "no Reflectory server answers" in run.stderr
    assert "Traceback" not in run.stderr
    assert list(tmp_path.iterdir()) == []


def _hang_up(listener: socket.socket) -> None:
    with suppress(OSError):
        while True:
            listener.accept()[0].close()


def test_a_folder_that_cannot_be_written_is_told_without_a_traceback(
    site: Site, study: StudyRecord, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    run = reflectory(site, "download", study.id, 1, "--out", tmp_path / "file" / "below")
    assert run.returncode == 1
    assert "Not a directory" in run.stderr
    assert "Traceback" not in run.stderr


def test_bars_are_for_terminals(site: Site, study: StudyRecord, tmp_path: Path) -> None:
    output, status = on_a_terminal(site, "download", study.id, "--bundle", "--out", str(tmp_path))
    assert status == 0
    assert "━" in output or "\x1b[?25l" in output, "a bar is drawn where a person watches"
    run = reflectory(site, "download", study.id, "--bundle", "--out", tmp_path)
    assert succeeded(run) == f"{tmp_path / f'{study.id}.zip'}\n"
    output, _ = on_a_terminal(
        site, "download", study.id, "--bundle", "--out", str(tmp_path), "--json"
    )
    assert "\x1b[" not in output


def test_a_log_is_followed_until_its_trial_has_ended(site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    log = site.settings.logs_dir / f"{lease.attempt}.log"
    log.parent.mkdir(exist_ok=True)
    place = ServerFile.read(site.settings.data_dir)
    assert place is not None
    with Client(place.url) as client:
        with pytest.raises(Refused, match="log"):
            client.log(study.id, 0)
        pieces = client.follow_log(study.id, 0, every_seconds=0.05)
        letter = "epoch 1: ü".encode()
        log.write_bytes(letter[:-1])
        assert next(pieces) == "epoch 1: "
        log.write_bytes(letter)
        assert next(pieces) == "ü"
        log.write_bytes(letter + b"\nend\n")
        end_trial(site, study)
        assert "".join(pieces) == "\nend\n"
        assert client.log(study.id, 0) == "epoch 1: ü\nend\n"
    assert succeeded(reflectory(site, "log", study.id, 0)) == "epoch 1: ü\nend\n"
    followed = succeeded(reflectory(site, "log", study.id, 0, "--follow", "--json"))
    assert json.loads(followed) == {"log": "epoch 1: ü\nend\n"}


def end_trial(site: Site, study: StudyRecord) -> None:
    with site.database.write() as session:
        outcome = TrialOutcome(cause=TrialCause.FAILED, detail="it broke")
        Trials(session).end(study.id, 0, state=TrialState.FAILED, at=now(), outcome=outcome)


def test_a_log_elsewhere_is_followed_beyond_what_is_kept_of_it(site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    event = '{"time": "1", "level": "INFO", "logger": "a", "message": "epoch %d"}\n'

    def written(content: str, cut: int) -> None:
        artifact = site.keep(content.encode())
        with site.database.write() as session:
            AttemptLogs(session).put(
                lease.attempt, study_id=study.id, artifact=artifact, cut=cut, at=now()
            )

    place = ServerFile.read(site.settings.data_dir)
    assert place is not None
    with Client(place.url) as client:
        pieces = client.follow_log(study.id, 0, every_seconds=0.05)
        written("one\ntwo", 0)
        assert next(pieces) == "one\ntwo"
        written(f"o\n{event % 1}", 6)
        assert next(pieces) == "\n1 INFO a: epoch 1\n", "it was seen before it was cut"
        at = 8 + len(event % 1)
        written(f"{event % 3}{event[:20]}", at + 9)
        assert next(pieces) == "[9 bytes were not kept]\n1 INFO a: epoch 3\n"
        written(f"{event % 3}{event % 4}", at + 9)
        assert next(pieces) == "1 INFO a: epoch 4\n", "half a line of JSON waits for the rest"
        end_trial(site, study)
        assert "".join(pieces) == ""
        assert client.log(study.id, 0).startswith(f"[{at + 9} bytes before this were not kept")


def test_the_log_of_an_attempt_that_begins_is_followed_from_its_beginning(site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    logs = site.settings.logs_dir
    logs.mkdir(exist_ok=True)
    (logs / f"{site.lease(study, 0).attempt}.log").write_text("a1 epoch 1\na1 epoch 2\n{")

    class Late(Client):
        """The second attempt begins between a look at the trial and the read of its log."""

        looks = 0

        def _send(self, request: Send, _answers: ExitStack) -> Response:
            self.looks += request.path.endswith("/log")
            if self.looks == 2 and request.path.endswith("/log"):
                attempt = site.lease(study, 0, attempt=2).attempt
                (logs / f"{attempt}.log").write_text("a2 goes on from epoch 2\na2 epoch 3\n")
                end_trial(site, study)
            return super()._send(request, _answers)

    place = ServerFile.read(site.settings.data_dir)
    assert place is not None
    with Late(place.url) as client:
        text = "".join(client.follow_log(study.id, 0, every_seconds=0.05))
    assert text == "a1 epoch 1\na1 epoch 2\n{a2 goes on from epoch 2\na2 epoch 3\n"


def test_no_server_names_what_was_tried_and_how_to_start_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        nobody = f"http://127.0.0.1:{listener.getsockname()[1]}"
    run = reflectory(None, "list", "--server", nobody)
    assert run.returncode == 4
    assert "--server" in run.stderr
    assert "reflectory serve" in run.stderr
    ServerFile(url=nobody, pid=1).write(tmp_path)
    run = reflectory(None, "list", "--data-dir", tmp_path)
    assert f"server.json in {tmp_path}" in run.stderr


def test_migrate_makes_the_tables_and_is_harmless_when_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        run = reflectory(None, "migrate", "--data-dir", tmp_path / "data", "--json")
        assert json.loads(succeeded(run))["database"].startswith("sqlite")
    assert reflectory(None, "migrate", REFLECTORY_DATABASE_URL="nonsense").returncode in (1, 2)


def test_a_key_is_in_no_output(site: Site, study: StudyRecord) -> None:
    for command in (("list",), ("show", study.id), ("show", "no-such-study"), ("datasets", "list")):
        for form in ((), ("--json",)):
            run = reflectory(site, *command, *form, REFLECTORY_KEY="rfl_secret")
            assert "rfl_secret" not in run.stdout + run.stderr
    run = reflectory(site, "list", REFLECTORY_KEY="rfl_secret with a space")
    assert run.returncode == 2
    assert "rfl_secret" not in run.stdout + run.stderr


def test_ctrl_c_ends_quietly_with_130(site: Site) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    log = site.settings.logs_dir / f"{lease.attempt}.log"
    log.parent.mkdir(exist_ok=True)
    log.write_text("the first line\n")
    with subprocess.Popen(
        [*COMMAND, "log", study.id, "0", "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "REFLECTORY_DATA_DIR": str(site.settings.data_dir)},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "the first line\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(300) == 130
        assert process.stderr.read() == ""
