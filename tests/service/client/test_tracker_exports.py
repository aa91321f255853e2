"""Exports to MLflow, Weights & Biases and TensorBoard, read back from their local stores."""

import struct
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.client import Client, ExtraMissing, Study
from storage.records import StudyRecord, TrialState
from tests.service.listening import listening
from tests.service.running import command
from tests.service.site import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("exports") / "data")
    yield site
    site.close()


@pytest.fixture(scope="module")
def url(site: Site) -> Iterator[str]:
    with listening(site) as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def running(site: Site) -> StudyRecord:
    """A study with a complete trial, one at work, and one that waits."""
    study = site.study(name="rows")
    site.run(study)
    site.trial(study, 0, quality=0.9, throughput=10.0)
    site.trial(study, 1, state=TrialState.RUNNING)
    site.trial(study, 2, state=TrialState.QUEUED)
    for number, epochs in ((0, 2), (1, 1)):
        for epoch in range(1, epochs + 1):
            site.epoch(study, number, epoch)
    return study


@pytest.fixture
def study(client: Client, running: StudyRecord) -> Study:
    return client.open(running.id)


def test_mlflow_has_a_run_for_each_trial_and_a_second_export_updates_it(
    site: Site, running: StudyRecord, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow.tracking import MlflowClient

    place = (tmp_path / "runs").as_uri()
    exported = study.export(to="mlflow", place=place)
    assert (exported.to, exported.place, exported.runs) == ("mlflow", place, 2)
    store: Any = MlflowClient(tracking_uri=place)

    def runs() -> dict[str, Any]:
        (experiment,) = (
            one for one in store.search_experiments() if one.name.startswith("reflectory")
        )
        found = store.search_runs([experiment.experiment_id])
        by_trial = {run.data.tags["reflectory.trial"]: run for run in found}
        assert len(by_trial) == len(found)
        return by_trial

    first = runs()
    assert set(first) == {"0", "1"}
    done = first["0"]
    assert done.data.params["architecture"] == "rnn"
    assert done.data.tags["reflectory.study"] == study.id
    assert done.data.metrics["quality"] == 0.9
    assert done.info.status == "FINISHED"
    assert first["1"].info.status == "RUNNING"
    name = "curve/validation"
    assert [one.step for one in store.get_metric_history(done.info.run_id, name)] == [1, 2]
    site.epoch(running, 1, 2)
    study.export(to="mlflow", place=place)
    second = runs()
    assert {key: run.info.run_id for key, run in second.items()} == {
        key: run.info.run_id for key, run in first.items()
    }
    for run in second.values():
        for metric in run.data.metrics:
            history = store.get_metric_history(run.info.run_id, metric)
            assert max(Counter(one.step for one in history).values()) == 1, metric
        assert len(store.get_metric_history(run.info.run_id, name)) == 2


def test_tensorboard_reads_each_value_once(
    site: Site, running: StudyRecord, study: Study, tmp_path: Path
) -> None:
    for _ in range(2):
        exported = study.export(to="tensorboard", place=tmp_path / "board")
        assert exported.runs == 2
    folders = sorted((tmp_path / "board" / study.id).iterdir())
    assert [folder.name for folder in folders] == ["trial-0", "trial-1"]
    (file,) = folders[0].iterdir()
    found = scalars(file)
    assert [step for step, _ in found["curve/validation"]] == [1, 2]
    assert found["quality"] == [(2, pytest.approx(0.9))]
    assert found["_hparams_/session_start_info"] == []


def test_tensorboard_may_be_written_many_times_within_a_second(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    for _ in range(4):
        study.export(to="tensorboard", place=tmp_path)
        (file,) = (tmp_path / study.id / "trial-0").iterdir()
        assert scalars(file)["quality"]


def scalars(file: Path) -> dict[str, list[tuple[int, float]]]:
    """What an event file says, as its format does: length, checksum, event, checksum."""
    from tensorboardX.proto import event_pb2

    proto: Any = event_pb2

    found: dict[str, list[tuple[int, float]]] = {}
    content = file.read_bytes()
    place = 0
    while place < len(content):
        (length,) = struct.unpack_from("<Q", content, place)
        event: Any = proto.Event()
        event.ParseFromString(content[place + 12 : place + 12 + length])
        place += 16 + length
        for value in event.summary.value:
            points = found.setdefault(value.tag, [])
            if value.WhichOneof("value") == "simple_value":
                points.append((event.step, value.simple_value))
    return found


def test_wandb_has_one_folder_for_each_trial(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert study.export(to="wandb", place="small networks").runs == 2
    folders = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert sorted(folder.name.split("-", 3)[-1] for folder in folders) == [
        f"{study.id}-0",
        f"{study.id}-1",
    ]
    records = wandb_records(next(folders[0].glob("*.wandb")))
    config = {one.key or one.nested_key[0]: one.value_json for one in records["config"]}
    assert config["architecture"] == '"rnn"'
    steps = [one.step.num for one in records["history"]]
    assert steps == [1, 2]
    assert dict(records["summary"])["quality"] == "0.9"


def wandb_records(file: Path) -> dict[str, Any]:
    """What a run's file says: its config, history and summary."""
    from wandb.proto import wandb_internal_pb2

    proto: Any = wandb_internal_pb2

    found: dict[str, Any] = {"config": [], "history": [], "summary": []}
    for data in logged(file.read_bytes()):
        record: Any = proto.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found["config"] += record.run.config.update
        elif kind == "config":
            found["config"] += record.config.update
        elif kind == "history":
            found["history"].append(record.history)
        elif kind == "summary":
            found["summary"] += [
                (one.key or one.nested_key[0], one.value_json) for one in record.summary.update
            ]
    return found


def logged(content: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log of blocks of 32 KiB, after W&B's own seven bytes."""
    place, record = 7, b""
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, part = struct.unpack_from("<HB", content, place + 4)
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if part in (1, 4):
            yield record
            record = b""


def test_the_command_exports(url: str, study: Study, tmp_path: Path) -> None:
    words = ("export", study.id, "--to", "tensorboard", "--place", tmp_path / "board")
    got = command(url, *words)
    assert got.returncode == 0, got.stderr
    assert got.stdout == f"2 runs in {tmp_path / 'board'}\n"
    assert command(url, "export", study.id, "--to", "neptune").returncode == 2


def test_a_target_that_is_none_is_refused_with_those_that_are(study: Study) -> None:
    wrong: Any = "neptune"
    with pytest.raises(ValueError, match="'neptune'; allowed are mlflow, wandb, tensorboard"):
        study.export(to=wrong)


def test_a_package_that_is_missing_is_named(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "tensorboardX", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'reflectory\[tensorboard\]'"):
        study.export(to="tensorboard", place=tmp_path)
