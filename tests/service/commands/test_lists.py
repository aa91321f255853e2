"""Lists that fit, things named in short, and questions before something is lost."""

import csv
import io
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import yaml

from service.commands.shown.listing import age, as_yaml
from storage.records import StudyRecord
from tests.patience import LONG_SECONDS
from tests.service.command_line import called, printed, served
from tests.service.site import Site

LONG = "a name that is much longer than any column of 80 could hold, as people give them 長い名前"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site") / "data")
    with served(site):
        yield site
    site.close()


@pytest.fixture(scope="module")
def studies(site: Site) -> list[StudyRecord]:
    """Two that have ended and, the newest, one that runs."""
    made = [site.study(name=name) for name in ("first", LONG, "one that runs")]
    for study in made:
        site.run(study)
        site.trial(study, 0, quality=0.8, throughput=4.0)
        site.trial(study, 1, quality=0.7, throughput=2.0)
    for study in made[:2]:
        site.finish(study)
    return made


def test_labels_find_a_study(site: Site, studies: list[StudyRecord]) -> None:
    first = studies[0]
    text = printed(site, "label", first.id[:8], "--tag", "thesis", "--tag", "chapter 2")
    assert text.rstrip().endswith("tagged thesis, chapter 2")
    printed(site, "label", first.id, "--notes", "before the new data")
    for words in (("--tag", "thesis"), ("--text", "the new data"), ("--text", "chapter")):
        found = json.loads(printed(site, "list", "--json", *words))
        assert [(one["id"], one["name"]) for one in found] == [(first.id, "first")]
    assert json.loads(printed(site, "label", first.id, "--no-tags", "--json"))["tags"] == []
    assert json.loads(printed(site, "list", "--json", "--tag", "thesis")) == []
    for wrong in ((), ("--tag", "x", "--no-tags")):
        assert called(site, "label", first.id, *wrong).exit_code == 2


@pytest.mark.parametrize("columns", [80, 100])
def test_a_list_fits_and_cuts_nothing_but_names(
    site: Site, studies: list[StudyRecord], columns: int
) -> None:
    lines = printed(site, "list", columns=columns).splitlines()
    assert lines[0].split() == ["id", "name", "state", "progress", "front", "age"]
    assert all(_cells(line) <= columns for line in lines)
    (cut,) = (line for line in lines if "a name that is" in line)
    assert re.search(r"a name that is much \S.*…", cut)
    for line, study in zip(lines[2:], reversed(studies), strict=True):
        assert line.startswith(study.id[:8])
        assert study.id not in line


def test_a_wide_list_has_all(site: Site, studies: list[StudyRecord]) -> None:
    text = printed(site, "list", "--wide")
    assert LONG in text
    assert all(study.id in text for study in studies)
    assert text.splitlines()[0].split()[-2:] == ["priority", "created"]


def test_a_list_is_sorted_and_cut_short(site: Site, studies: list[StudyRecord]) -> None:
    def names(*words: str) -> list[str]:
        rows = csv.DictReader(io.StringIO(printed(site, "list", "-o", "csv", *words)))
        return [row["name"] for row in rows]

    expected = sorted(study.name for study in studies)
    assert names("--sort", "name") == expected
    assert names("--sort", "-name") == expected[::-1]
    assert names("--sort", "name", "--limit", "1") == expected[:1]
    assert names("--sort", "age") == names() == [study.name for study in reversed(studies)]
    wrong = called(site, "list", "--sort", "nmae", columns=200)
    assert wrong.exit_code == 2
    assert "did you mean 'name'?" in " ".join(wrong.output.split())


def test_all_forms_of_a_list_hold_the_same(site: Site, studies: list[StudyRecord]) -> None:
    document = json.loads(printed(site, "list", "--json"))
    assert [study["id"] for study in document] == [study.id for study in reversed(studies)]
    assert json.loads(printed(site, "list", "-o", "json")) == document
    assert yaml.safe_load(printed(site, "list", "-o", "yaml")) == document
    rows = list(csv.DictReader(io.StringIO(printed(site, "list", "-o", "csv"))))
    assert [row["id"] for row in rows] == [study["id"] for study in document]
    assert [row["front"] for row in rows] == ["1", "1", "1"]
    assert called(site, "list", "--json", "-o", "csv").exit_code == 2


def test_yaml_is_what_others_read() -> None:
    strange = ["", "no", "1e3", "a: b", "#", "é 長 \U0001f600", "\x7f\u2028\ufeff\t\n", '"']
    document = {"list": [*strange, [], {}, [[1]], {"deep": [{"x": 1e-7}]}], "none": None, "": True}
    assert yaml.safe_load(as_yaml(document)) == document


def test_lists_of_data_sets_and_models_are_empty_at_first(site: Site) -> None:
    assert printed(site, "datasets", "list").strip() == "no data sets"
    assert printed(site, "models", "list", "-o", "json").strip() == "[]"


def test_a_study_is_named_in_short(site: Site, studies: list[StudyRecord]) -> None:
    first, long, newest = studies
    for text, study in {
        first.id: first,
        first.id[:6]: first,
        "first": first,
        LONG: long,
        "latest": newest,
        "latest~1": long,
    }.items():
        assert json.loads(printed(site, "show", text, "--json"))["id"] == study.id, text


def test_what_fits_nothing_is_refused_with_the_newest(
    site: Site, studies: list[StudyRecord]
) -> None:
    for text in ("nothing", studies[0].id[:3], "firs", "latest~x"):
        refused = called(site, "front", text)
        assert refused.exit_code == 3, text
        assert all(study.id in refused.output for study in studies), text
    for far in ("3", "9" * 20, "9" * 5000):
        refused = called(site, "front", f"latest~{far}")
        assert refused.exit_code == 3, refused.output
        assert "there are 3" in refused.output
    assert called(site, "show", f"latest~{'0' * 30}1").exit_code == 0


def test_what_is_no_url_of_a_server_is_refused(site: Site) -> None:
    for command, status in ((["list"], 4), (["worker"], 2)):
        for nonsense in ("http://[::1", "notaurl", "ftp://example.org"):
            refused = called(site, *command, "--server", nonsense)
            assert refused.exit_code == status, refused.output
            assert "URL" in refused.output
            assert isinstance(refused.exception, SystemExit)


@pytest.mark.parametrize("command", ["cancel", "delete"])
def test_nothing_is_lost_where_nobody_can_answer(
    site: Site, studies: list[StudyRecord], command: str
) -> None:
    ended, running = studies[0], studies[2]
    study = running if command == "cancel" else ended
    for words in ((study.id,), (study.id, "--json"), ("latest", "--yes")):
        refused = called(site, command, *words)
        assert refused.exit_code == 2, words
        assert "--yes" in refused.output
    states = [one["state"] for one in json.loads(printed(site, "list", "--json"))]
    assert states == ["running", "finished", "finished"]


def test_a_study_that_goes_on_is_not_deleted(site: Site, studies: list[StudyRecord]) -> None:
    refused = called(site, "delete", studies[2].id, "--yes")
    assert refused.exit_code == 3
    assert f"reflectory cancel {studies[2].id[:8]}" in refused.output


@pytest.mark.parametrize("words", [("pause",), ("resume",), ("cancel", "--yes")])
def test_what_comes_to_nothing_is_said(
    site: Site, studies: list[StudyRecord], words: tuple[str, ...]
) -> None:
    command, *rest = words
    said = called(site, command, studies[0].id, *rest)
    assert said.exit_code == 1
    assert "it is finished" in " ".join(said.stderr.split())
    assert said.stdout == ""


def test_a_study_that_has_ended_keeps_the_priority_that_it_is_given(
    site: Site, studies: list[StudyRecord]
) -> None:
    """With a larger budget it goes on, and then it counts."""
    assert "is finished" in printed(site, "priority", studies[0].id, "5")
    assert json.loads(printed(site, "show", studies[0].id, "--json"))["spec"]["priority"] == 5


def test_what_fits_several_is_refused_with_all_of_them(site: Site) -> None:
    twins = [site.study(name="twin") for _ in range(2)]
    refused = called(site, "show", "twin")
    assert refused.exit_code == 3
    assert "'twin' means 2 studies" in refused.output
    assert all(twin.id in refused.output for twin in twins)


def test_a_person_is_asked_before_something_is_lost(site: Site) -> None:
    study = site.study(name="to be deleted")
    site.run(study)
    site.trial(study, 0, quality=0.8)
    output, status = answered(site, "y\n", "cancel", study.id)
    assert f'Cancel study {study.id[:8]} "to be deleted"' in output
    assert status == 0
    site.finish(study)
    output, status = answered(site, "n\n", "delete", study.id)
    question = rf'Delete study {study.id[:8]} "to be deleted" with 1 trial and [\d.]+ KB\?'
    assert re.search(question, output)
    assert "[y/N]" in output
    assert "Nothing was deleted" in output
    assert status == 1
    assert called(site, "show", study.id).exit_code == 0


def answered(site: Site, answer: str, *words: str) -> tuple[str, int]:
    """What a command prints on a terminal on which somebody answers, and its exit code."""
    main, end = pty.openpty()
    environment = {"REFLECTORY_DATA_DIR": str(site.settings.data_dir), "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", *words],
        stdin=end,
        stdout=end,
        stderr=end,
        env={**os.environ, "COLUMNS": "120", **environment},
    )
    os.close(end)
    os.write(main, answer.encode())
    pieces: list[bytes] = []
    try:
        while piece := os.read(main, 65536):
            pieces.append(piece)
    except OSError:
        pass  # Linux says so when the last process has closed the terminal.
    finally:
        os.close(main)
    return b"".join(pieces).decode(), process.wait(LONG_SECONDS)


def test_an_age_is_told_in_its_largest_unit() -> None:
    now = datetime.now(UTC)
    for seconds, told in ((3, "3 s"), (200, "3 min"), (3 * 3600 + 9, "3 h"), (86_400 * 40, "40 d")):
        assert age(now - timedelta(seconds=seconds, milliseconds=1)) == told
    assert age(now + timedelta(hours=1)) == "0 s", "another machine's clock"


def _cells(line: str) -> int:
    return sum(2 if letter > "\u2e80" else 1 for letter in line)
