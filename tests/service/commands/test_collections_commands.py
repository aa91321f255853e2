"""`reflectory collections`, against the real API over rows as a coordinator leaves them."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from service.client import Client
from service.data_dir.server_file import ServerFile
from storage.records import StudyState
from storage.repositories.studies import Studies
from tests.service.commands.test_cli import reflectory, succeeded
from tests.service.listening import listening
from tests.service.site import SMALL_SPEC, Site

TWO: dict[str, Any] = {
    **{name: part for name, part in SMALL_SPEC.items() if name != "task"},
    "name": "[bold]two[/]",
    "objectives": ["quality", "parameters"],
    "tasks": [{"kind": "digits"}, {"kind": "digits", "layout": "pixels"}],
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("site") / "data")
    with listening(site) as (host, port):
        ServerFile(url=f"http://{host}:{port}", pid=os.getpid()).write(site.settings.data_dir)
        yield site
    site.close()


@pytest.fixture(scope="module")
def collection(site: Site) -> str:
    """A finished collection, submitted from the command line."""
    told = json.loads(succeeded(reflectory(site, "submit", "-", "--json", given=json.dumps(TWO))))
    for index, member in enumerate(told["studies"]):
        with site.database.read() as session:
            study = Studies(session).get(member["study"])
        site.run(study)
        best = 0.9 - 0.1 * index
        site.trial(study, 0, parametrization="dense", quality=best, test_quality=0.5)
        site.trial(study, 1, parametrization="low_rank", quality=best - 0.1, test_quality=0.75)
        site.finish(study, StudyState.FINISHED)
    return str(told["id"])


def test_collections_are_listed_shown_and_compared(site: Site, collection: str) -> None:
    listed = succeeded(reflectory(site, "collections", "list", COLUMNS="80"))
    assert collection[:8] in listed
    assert "[bold]two[/]" in listed, "a name is text, not markup"
    assert max(map(len, listed.splitlines())) <= 80
    shown = succeeded(reflectory(site, "collections", "show", "latest"))
    assert "digits 2" in shown
    assert "trials ended: 4" in shown
    ranks = succeeded(reflectory(site, "collections", "ranks", collection[:6]))
    for words in ("Mean ranks over 2 data sets", "Friedman p = 0.157", "rnn low_rank", "1.00"):
        assert words in ranks
    results = succeeded(reflectory(site, "collections", "results", "[bold]two[/]"))
    assert "90.00 %" in results
    text = succeeded(reflectory(site, "collections", "results", "latest", "--format", "markdown"))
    assert text.startswith("# \\[bold\\]two\\[/\\]")
    assert "## Ranks" in text


def test_a_wrong_collection_is_refused_with_each_fault_on_a_line(site: Site) -> None:
    wrong = {
        **TWO,
        "tasks": [*TWO["tasks"], {"kind": "digits"}],
        "collection_budget": {"trails": 1},
    }
    run = reflectory(site, "submit", "-", given=json.dumps(wrong))
    assert run.returncode == 3
    assert "collection_budget.trails: unknown key" in run.stderr
    wrong["collection_budget"] = {"trials": 1}
    run = reflectory(site, "submit", "-", given=json.dumps(wrong))
    assert "tasks.2: this task stands twice" in run.stderr


def test_collections_are_steered_and_deleted_after_a_question(site: Site) -> None:
    with Client(_server(site)) as client:
        made = client.submit_collection({**TWO, "name": "to be deleted"})
        assert client.dry_run_collection(TWO).studies[1].row == "digits 2"
        assert client.pause_collection(made.id).state == "paused"
        assert client.resume_collection(made.id).states == {"queued": 2}
        asked = reflectory(site, "collections", "cancel", made.id)
        assert asked.returncode == 2
        assert "--yes" in asked.stderr
        succeeded(reflectory(site, "collections", "cancel", made.id, "--yes"))
        for member in made.studies:
            with site.database.read() as session:
                study = Studies(session).get(member.study)
            assert study.ending is not None
            site.finish(study, StudyState.CANCELLED)
        succeeded(reflectory(site, "collections", "delete", made.id, "--yes"))
        assert made.id not in [one.id for one in client.collections()]


def _server(site: Site) -> str:
    place = ServerFile.read(site.settings.data_dir)
    assert place is not None
    return place.url
