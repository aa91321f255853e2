"""Studies, trials and fronts as handles, of both clients, over the real API."""

import asyncio
import inspect
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest

from service.api.fronts.schemas import FrontDocument
from service.client import (
    AsyncClient,
    Client,
    ExtraMissing,
    NoSuchStudy,
    Refused,
    Study,
    StudyFailed,
    Trial,
)
from service.client.handles import study as handles
from service.client.handles.figures import FigureJson
from service.client.handles.results import Front
from service.client.handles.study import AsyncStudy
from service.client.handles.trial import AsyncTrial
from service.client.handles.waiting import LineView
from storage.records import StudyRecord, StudyState, TrialState
from tests.service.away import AwayClient
from tests.service.client.test_network_choice import front as front_of_files
from tests.service.listening import listening
from tests.service.site import SMALL_SPEC, Site

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("handles") / "data")
    yield site
    site.close()


@pytest.fixture(scope="module")
def done(site: Site) -> StudyRecord:
    """A finished study: three trials are complete, one was infeasible."""
    study = site.study(name=HOSTILE)
    site.run(study)
    for number, quality, size in ((0, 0.97, 900), (1, 0.965, 500), (2, 0.9, 100)):
        site.trial(study, number, quality=quality, throughput=10.0, parameters=size)
        site.epoch(study, number, 1)
    site.trial(study, 3, state=TrialState.INFEASIBLE, parameters=5000)
    site.finish(study)
    return study


@pytest.fixture(scope="module")
def url(site: Site, done: StudyRecord) -> Iterator[str]:
    with listening(site) as (host, port):
        yield f"http://{host}:{port}"


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def study(client: Client, done: StudyRecord) -> Study:
    return client.open(done.id)


def test_a_submission_is_a_handle_that_reads_as_its_document(client: Client) -> None:
    study = client.submit(SMALL_SPEC)
    assert isinstance(study, Study)
    assert (study.state, study.ended, study.progress.trials.total) == ("queued", False, 4)
    assert study.model_dump() == client.study(study.id).model_dump()
    total = study.progress.steps[1]
    assert repr(study) == f"Study({study.id}, 'small digits', queued, 0/{total})"
    assert study.pause() is study
    assert study.state == "paused"
    study.resume()
    assert study.budget(trials=9) is study
    assert study.progress.trials.total == 9


def test_a_study_that_was_cancelled_raises(site: Site, client: Client) -> None:
    record = site.study()
    site.run(record)
    site.finish(record, StudyState.CANCELLED)
    study = client.open(record.id)
    with pytest.raises(StudyFailed, match=f"study {study.id} is cancelled") as failed:
        study.wait()
    assert failed.value.study is study
    study.delete()
    with pytest.raises(Refused):
        study.refresh()


def test_waiting_ends_with_the_study_and_shows_lines(
    site: Site, client: Client, capsys: pytest.CaptureFixture[str]
) -> None:
    record = site.study(name="waited for")
    study = client.open(record.id)
    thread = threading.Thread(target=lambda: (site.run(record), site.finish(record)))
    thread.start()
    assert study.wait(progress=True) is study
    thread.join()
    assert study.state == "finished"
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"study {record.id} ")
    assert lines[-1] == f"study {record.id} finished: 0 of {study.progress.steps[1]}"
    assert len(lines) == len(set(lines))
    study.wait()
    assert capsys.readouterr().out == ""


def test_waiting_goes_on_while_the_server_is_away(
    url: str, done: StudyRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handles, "_REFRESH_SECONDS", 0.0)
    with AwayClient(url) as client:
        study = client.open(done.id)
        # Each event has a look follow it, and the last look has patience.
        client.away = len(list(study.watch())) + 2
        assert study.wait(progress=True) is study
        assert client.away == 0


def test_a_line_is_written_when_something_changed(study: Study) -> None:
    class Out:
        text = ""

        def write(self, text: str) -> int:
            self.text += text
            return len(text)

        def flush(self) -> None: ...

    out = Out()
    view = LineView(out)  # pyright: ignore[reportArgumentType] -- writes and flushes
    view.show(study)
    view.show(study)
    done, total = study.progress.steps
    assert out.text == f"study {study.id} finished: {done} of {total}\n"


def test_a_notebook_shows_one_output_that_is_replaced(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    import IPython
    import IPython.display

    shown: list[dict[str, str]] = []

    class Kernel:
        kernel = True

    class Output:
        def update(self, data: dict[str, str], **_: object) -> None:
            shown.append(data)

    def display(data: dict[str, str], **_: object) -> Output:
        shown.append(data)
        return Output()

    monkeypatch.setattr(IPython, "get_ipython", Kernel)
    monkeypatch.setattr(IPython.display, "display", display)
    study.wait(progress=True)
    assert len(shown) >= 2
    assert "&lt;script&gt;" in shown[-1]["text/html"]
    assert HOSTILE not in shown[-1]["text/html"]
    assert shown[-1]["text/plain"].startswith(f"study {study.id} finished: ")


def test_a_study_is_opened_by_what_people_call_it(site: Site, client: Client) -> None:
    first, second, third = (site.study(name=name) for name in ("rows", "named", "rows"))
    assert client.open("latest").id == third.id
    assert client.open("latest~1").id == second.id
    assert client.open("named").id == second.id
    assert client.open(first.id[:-2]).id == first.id
    with pytest.raises(NoSuchStudy, match=f"2 studies: {third.id} .rows., {first.id} .rows."):
        client.open("rows")
    with pytest.raises(NoSuchStudy, match=f"'nothing'.* the newest are {third.id}"):
        client.open("nothing")
    with pytest.raises(NoSuchStudy, match="none is latest~4000"):
        client.open("latest~4000")


def test_the_best_is_the_cheapest_within_a_loss(study: Study) -> None:
    front = study.front()
    assert isinstance(front, Front)
    taken = {loss: front.best(max_quality_loss=loss) for loss in (None, 0, 0.005, 0.01, 0.07)}
    assert {loss: point and point.trial for loss, point in taken.items()} == {
        None: 0,
        0: 0,
        0.005: 1,
        0.01: 1,
        0.07: 2,
    }
    assert front.best(max_loss=0.01) == front.best(max_quality_loss=0.01)
    with pytest.raises(ValueError, match=r"-0.1; allowed are 0 and more"):
        front.best(max_quality_loss=-0.1)
    with pytest.raises(ValueError, match="another name"):
        front.best(max_quality_loss=0.1, max_loss=0.1)
    assert study.best(max_quality_loss=0.01).number == 1


def test_a_loss_counts_downwards_where_less_is_better() -> None:
    document: FrontDocument = front_of_files(0, 1, 2, 3, axes=("quality", "bytes"))
    front = Front.model_validate(document.model_dump())
    taken = [front.best(max_quality_loss=loss) for loss in (0, 0.001, 0.01, 1)]
    assert [point and point.trial for point in taken] == [0, 1, 2, 3]
    fastest = Front.model_validate(
        front_of_files(0, 1, 2, 3, axes=("quality", "latency")).model_dump()
    )
    point = fastest.best(max_quality_loss=0.01)
    assert point is not None
    assert point.trial == 1
    empty = Front.model_validate({**document.model_dump(), "points": []})
    assert empty.best(max_quality_loss=0.01) is None


def test_records_and_frames_have_the_same_columns_and_fixed_types(study: Study) -> None:
    records = study.records()
    assert [record["trial"] for record in records] == [0, 1, 2, 3]
    drawn = study.trial(0).hyperparameters
    assert drawn
    assert all(records[0][f"params.{name}"] == value for name, value in drawn.items())
    assert records[3]["quality"] is None
    frame = study.trials().frame()
    assert set(frame.columns) == {name for record in records for name in record}
    assert frame["quality"].isna().tolist() == [False, False, False, True]
    assert frame["parameters"].tolist() == [900, 500, 100, 5000]
    front = study.front().to_pandas()
    assert front["trial"].tolist() == [0, 1, 2]
    for found in (frame, front, study.trials(outcome="failed").frame()):
        types = {name: str(found[name].dtype) for name in ("trial", "quality", "outcome")}
        assert types == {"trial": "Int64", "quality": "Float64", "outcome": "string"}
    pandas.testing.assert_frame_equal(study.to_pandas(), frame)


def test_notebooks_show_escaped_tables(study: Study) -> None:
    trial = study.trial(0)
    for shown in (study, study.front(), study.trials(), trial, study.importance()):
        html: str = shown._repr_html_()
        assert html.startswith("<table>")
        assert "<script" not in html
        assert len(repr(shown)) < 100
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in study._repr_html_()
    hostile = trial.model_copy(update={"architecture": HOSTILE})
    hostile._client, hostile._study_id = trial.client, HOSTILE
    assert "<script" not in hostile._repr_html_()
    assert repr(trial) == "Trial(0, rnn dense, complete, quality 0.97)"


def test_a_trial_is_downloaded_into_a_folder(study: Study, tmp_path: Path) -> None:
    got = study.best(max_loss=0.01).download(tmp_path / "small")
    names = {file.name for file in got.files}
    assert {"MODEL_CARD.md", "model.safetensors"} <= names
    assert all(file.parent == tmp_path / "small" and file.is_file() for file in got.files)
    assert {file.name for file in (tmp_path / "small").iterdir()} == names


def test_calls_of_a_trial_name_it(study: Study) -> None:
    trial = study.trial(1)
    assert isinstance(trial, Trial)
    assert [epoch.epoch for epoch in trial.metrics()] == [1]
    assert "trial 1" in trial.card().lower()


def test_figures_are_plotlys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = FigureJson(
        data=[{"type": "scatter", "x": [1], "y": [2], "customdata": [3]}],
        layout={"title": {"text": "front"}, "meta": {"summary": "one point"}},
        config={"displaylogo": False},
    )
    made: Any = figure.plotly()
    assert made.data[0].customdata == (3,)
    assert made.layout.title.text == "front"
    monkeypatch.setitem(sys.modules, "plotly.graph_objects", None)
    with pytest.raises(ExtraMissing, match=r"pip install 'reflectory\[plots\]'"):
        figure.plotly()


def test_plots_are_those_of_the_pages(study: Study) -> None:
    front: Any = study.plot_front(theme="dark", trials=[0])
    drawn = {int(number) for trace in front.data for number in trace.customdata or ()}
    assert {0, 1, 2} <= drawn
    curves: Any = study.plot_curves([0, 2])
    assert {0, 2} <= {int(number) for trace in curves.data for number in trace.customdata or ()}
    others: tuple[Any, ...] = (
        study.plot_parallel(),
        study.plot_growth(),
        study.plot_importance(),
    )
    for made in others:
        assert made.layout.meta["summary"]
    with pytest.raises(Refused, match="front, parallel"):
        study.figure("pie")


def shape(method: Any) -> list[tuple[str, Any, Any]]:
    """Names, kinds and defaults of the parameters that a caller gives."""
    given = inspect.signature(method).parameters.values()
    return [(one.name, one.kind, one.default) for one in given]


@pytest.mark.parametrize(
    ("one", "other"), [(Client, AsyncClient), (Study, AsyncStudy), (Trial, AsyncTrial)]
)
def test_both_clients_have_the_same_calls(one: type, other: type) -> None:
    own = {name for name in dir(one) if not name.startswith("_")}
    assert own == {name for name in dir(other) if not name.startswith("_")}
    compared = 0
    for name in own:
        ours, theirs = inspect.getattr_static(one, name), inspect.getattr_static(other, name)
        if callable(ours) and hasattr(ours, "__wrapped__"):
            assert shape(ours) == shape(theirs), name
            assert ours.__doc__ == theirs.__doc__
            assert ours.__doc__, name
            compared += 1
    assert compared >= 12


def test_calls_of_a_handle_have_the_parameters_of_the_client_but_its_name() -> None:
    assert shape(Study.front)[1:] == shape(Client.front)[2:]
    assert shape(Trial.onnx)[1:] == shape(Client.onnx)[3:]
    assert inspect.signature(Client.front).return_annotation is Front


def test_the_awaited_client_does_the_same(url: str, done: StudyRecord, tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncClient(url) as client:
            submitted = await client.submit({**SMALL_SPEC, "name": "awaited"})
            assert isinstance(submitted, AsyncStudy)
            assert await submitted.pause() is submitted
            assert submitted.state == "paused"
            assert submitted.id in [one.id async for one in client.studies()]
            with pytest.raises(Refused):
                await client.study("none")
            study = await client.open(done.id)
            assert await study.wait(progress=True) is study
            events = [event async for event in study.watch()]
            assert events[-1].payload["state"] == "finished"
            front, trials = await asyncio.gather(study.front(), study.trials())
            assert (len(front.points), len(trials)) == (3, 4)
            best = await study.best(max_quality_loss=0.01)
            assert isinstance(best, AsyncTrial)
            assert best.number == 1
            got = await best.checkpoint(tmp_path / "one.safetensors")
            assert got.size == (tmp_path / "one.safetensors").stat().st_size
            file = tmp_path / "pets.csv"
            file.write_text("y,a\n" + "cat,1\ndog,2\n" * 20)
            dataset = await client.upload_dataset(file)
            assert (await client.dataset(dataset.id)).id == dataset.id
            await client.delete_dataset(dataset.id)

    asyncio.run(work())


def test_the_awaited_client_is_patient_and_gives_up(url: str) -> None:
    async def work() -> None:
        async with AsyncClient("http://127.0.0.1:9", patience=0) as client:
            await client.catalog()

    from service.client import Unreachable

    with pytest.raises(Unreachable, match="no Reflectory server answers"):
        asyncio.run(work())


def test_states_of_a_handle_are_those_of_the_server(site: Site, client: Client) -> None:
    record = site.study(name="changes")
    study = client.open(record.id)
    site.run(record)
    assert study.state == "queued"
    assert study.refresh().state == "running"
    assert study.state == StudyState.RUNNING
