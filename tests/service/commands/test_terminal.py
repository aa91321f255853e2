"""What the terminal tells beside lists: versions, the doctor, plots, dry runs, and faults."""

import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

import service.commands
from search.documents.nearest import allowed_instead, meant
from service.cli import application
from service.client import Client
from service.commands.shown.plotted import front_plot
from service.commands.shown.tables import front_table
from storage.records import StudyRecord, TrialState
from storage.repositories.studies import Studies
from tests.service.command_line import called, printed, served
from tests.service.site import SMALL_SPEC, Site

EXAMPLE = Path(__file__).parents[3] / "deploy" / "examples" / "digits.json"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site") / "data")
    with served(site):
        yield site
    site.close()


@pytest.fixture(scope="module")
def study(site: Site) -> StudyRecord:
    study = site.study()
    site.run(study)
    for number, (quality, throughput) in enumerate([(0.8, 10.0), (0.9, 5.0), (0.7, 4.0)]):
        values = {"quality": quality, "test_quality": quality - 0.05, "throughput": throughput}
        site.trial(study, number, **values)
    site.finish(study)
    return study


def test_versions_are_told_with_the_servers(site: Site) -> None:
    first, second = printed(site, "--version").splitlines()
    assert first.startswith(f"reflectory {version('reflectory')}, Python 3.")
    assert second.startswith("server http://127.0.0.1:")
    assert second.endswith(version("reflectory"))


def test_a_server_that_is_away_hides_no_version(tmp_path: Path) -> None:
    away = {"REFLECTORY_SERVER": "http://127.0.0.1:1"}
    result = CliRunner().invoke(application, ["--version"], env=away)
    assert result.exit_code == 0
    assert "http://127.0.0.1:1: does not answer" in result.output
    nobody = {"REFLECTORY_SERVER": "", "REFLECTORY_DATA_DIR": str(tmp_path)}
    assert len(CliRunner().invoke(application, ["--version"], env=nobody).stdout.splitlines()) == 1


def test_the_doctor_finds_what_is_there_and_what_is_wrong(site: Site) -> None:
    result = called(site, "doctor", "--json")
    findings = {one["what"]: one for one in json.loads(result.stdout)}
    assert {"program", "libraries", "CPU", "GPU", "kernels", "disk", "database", "server"} <= set(
        findings
    )
    assert findings["database"]["verdict"] == "good"
    assert findings["server"]["verdict"] == "good"
    # The site has no coordinator: nothing would run there.
    assert findings["its coordinator"]["verdict"] == "wrong"
    assert findings["its devices"]["remedy"]
    assert result.exit_code == 1


def test_the_doctor_of_an_empty_machine_changes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    result = CliRunner().invoke(
        application,
        ["doctor", "--json", "--data-dir", str(folder), "--server", "http://127.0.0.1:1"],
    )
    findings = {one["what"]: one for one in json.loads(result.stdout)}
    assert findings["database"]["verdict"] == "note"
    assert "reflectory serve" in findings["database"]["remedy"]
    assert findings["server"]["verdict"] == "wrong"
    assert not folder.exists()


def test_a_front_has_test_quality_and_file_sizes_and_fits(site: Site, study: StudyRecord) -> None:
    table = printed(site, "front", study.id)
    assert all(len(line) <= 80 for line in table.splitlines())
    (first,) = (line.split() for line in table.splitlines() if " 0.9000 " in line)
    assert "0.8500" in first
    with Client(_url(site)) as client:
        point = client.front(study.id).best()
    assert point is not None
    assert first[-1] == f"{point.bytes['checkpoint'] / 1000:,.1f}"


@pytest.mark.parametrize("width", [80, 120])
def test_a_front_with_latency_fits_and_no_sentence_is_cut(
    site: Site, study: StudyRecord, width: int
) -> None:
    with Client(_url(site)) as client:
        front = client.front(study.id)
    told = {"latency_p99": 0.0123, "parametrization": "low_rank_diagonal", "slower": True}
    points = [point.model_copy(update=told) for point in front.points]
    console = Console(width=width, color_system=None)
    with console.capture() as captured:
        console.print(front_table(front.model_copy(update={"points": points})))
    text = captured.get()
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert text.count("12.3 ms") == len(points)
    assert "latency" in text
    table, _, sentences = text.partition("measured with")
    assert front.recommendation is not None
    assert " ".join(sentences.split()).endswith(front.recommendation.words)
    # A name that does not fit is broken at an underscore, and nowhere else.
    names = {80: {"low_rank_", "diagonal"}, 120: {"low_rank_diagonal"}}
    assert names[width] <= set(table.split())


def test_a_front_is_drawn(site: Site, study: StudyRecord) -> None:
    text = printed(site, "front", study.id, "--plot")
    plot = text[text.index("\naccuracy\n") :]
    assert all(len(line) <= 80 for line in plot.splitlines())
    drawn = [line for line in plot.splitlines() if "┤" in line or "│" in line]
    # The best is the topmost, and the largest: it is at the right end. The beaten one is a dot.
    assert drawn[0].startswith("0.9000 ┤")
    assert drawn[0].rstrip().endswith("a")
    assert sum("·" in line for line in drawn) == 1
    assert "a rnn dense" in plot
    assert called(site, "front", study.id, "--plot", "--csv").exit_code == 2


def test_a_plot_without_points_says_so(site: Site) -> None:
    with Client(_url(site)) as client:
        empty = client.front(site.study(name="empty").id)
    assert front_plot(empty, [], width=80) == "no trial has both values yet"


def test_a_dry_run_tells_steps_and_time(site: Site, study: StudyRecord, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(SMALL_SPEC))
    told = " ".join(printed(site, "submit", spec, "--dry-run").split())
    assert "8 to 16, step 8" in told
    # The study of the site has trained nothing: there is nothing to go by.
    assert "time: not known until the first trial" in told


def test_a_dry_run_tells_the_time_of_the_budget_that_a_document_leaves_out(
    site: Site, tmp_path: Path
) -> None:
    known = site.study()
    site.run(known)
    site.trial(known, 0, state=TrialState.RUNNING)
    for epoch in (1, 2):
        site.epoch(known, 0, epoch)
    with site.database.write() as session:
        Studies(session).add_running_seconds(known.id, 12.0)
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({**SMALL_SPEC, "budget": {"epochs": 2}}))
    told = " ".join(printed(site, "submit", spec, "--dry-run").split())
    assert "time: about 6 min for 30 trials of 2 epochs" in told


def test_faults_are_a_list_with_what_was_meant(site: Site, tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({**SMALL_SPEC, "naem": "x", "task": {"kind": "digitz"}}))
    lines = called(site, "submit", spec).stderr.splitlines()
    assert lines[0] == "The request is not valid"
    assert any(line.startswith("  naem: ") and "did you mean 'name'?" in line for line in lines)
    assert any("did you mean 'digits'?" in line for line in lines)


def test_an_option_goes_by_its_own_name(site: Site, tmp_path: Path) -> None:
    ragged = tmp_path / "ragged.ts"
    ragged.write_text("@classLabel true a b\n@data\n1,2,3:a\n4,5:b\n")
    told = called(site, "datasets", "upload", ragged)
    assert told.exit_code == 3
    assert "unequal lengths need --pad" in told.stderr
    assert "unequal_lengths" in called(site, "datasets", "upload", ragged, "--json").stderr


def test_many_allowed_names_are_cut_to_the_nearest() -> None:
    many = [f"name{number}" for number in range(30)]
    told = allowed_instead("name7x", many, rest="the catalog has all")
    assert told.startswith("; did you mean 'name7'? allowed are 30, such as name7, ")
    assert told.count("name") == 6
    assert told.endswith("; the catalog has all")
    assert allowed_instead("x", ["one", "two"], rest="") == "; allowed are one, two"
    assert (meant("digitz", ["digits"]), meant("x", ["digits"])) == (
        "; did you mean 'digits'?",
        "",
    )


@pytest.mark.parametrize(
    ("words", "without"),
    [
        (["--version"], {"pydantic", "httpx2", "rich.console", "service.client"}),
        (["--help"], {"pydantic", "httpx2", "service.client"}),
        (
            ["list", "--server", "SERVER"],
            {"httpx2", "service.client", "service.settings", "rich.console", "sqlalchemy"},
        ),
    ],
    ids=lambda given: given[0] if isinstance(given, list) else None,
)
def test_a_command_imports_what_it_needs(
    site: Site, words: list[str], without: set[str], tmp_path: Path
) -> None:
    words = [_url(site) if word == "SERVER" else word for word in words]
    program = f"""
import sys
sys.argv = ["reflectory", *{words!r}]
from service.cli import main
try:
    main()
except SystemExit:
    pass
print(*sys.modules, file=sys.stderr)
"""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"HOME": str(tmp_path)},
    )
    imported = set(ran.stderr.split())
    assert "typer" in imported
    assert not imported & without


def test_the_demos_study_comes_with_the_package() -> None:
    folder = Path(service.commands.__path__[0])
    assert (folder / "demo.json").read_text() == EXAMPLE.read_text()


def _url(site: Site) -> str:
    return json.loads((site.settings.data_dir / "server.json").read_text())["url"]
