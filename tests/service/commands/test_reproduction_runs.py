"""`reproduce` against the real API, with the coordinator's part played by the test."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from search.documents.papers import RowEntry
from search.papers import SEARCHED, TABLES, row_named
from search.papers.cells import Cell
from service.cli import application
from service.client import Client
from service.commands.reproduction.results import results_of
from service.commands.reproduction.run import Plan, Reproduction, plans
from storage.fleet.coordinators import CoordinatorRecord, Coordinators, SlotRecord
from storage.records import StudyRecord, StudyState, TrialState
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.service.listening import listening
from tests.service.running import wait_until
from tests.service.site import Site, now

DIZZY = TABLES["dizzy"].document()
FIRST, RIVAL = (
    next(entry for entry in DIZZY.entries if entry.key == f"figure-1/{name}")
    for name in ("dizzy-128-10", "rnn-128-tail")
)


@pytest.fixture
def client(site: Site) -> Iterator[Client]:
    with listening(site) as (host, port), Client(f"http://{host}:{port}") as client:
        yield client


def end(site: Site, study: StudyRecord, **outcome: object) -> None:
    """Its one trial has trained for a hundred epochs, and that is all."""
    site.trial(study, 0, **outcome)
    with site.database.write() as session:
        Trials(session).set_epochs(study.id, 0, 100)
    site.finish(study)


@contextmanager
def coordinating(site: Site, **given: object) -> Iterator[list[str]]:
    """Ends every study that is queued, with one trial as given; gives the names of those."""
    names: list[str] = []
    over = threading.Event()

    def work() -> None:
        while not over.wait(0.02):
            with site.database.read() as session:
                page = Studies(session).page(limit=50, state=StudyState.QUEUED)
            for study in page.items:
                names.append(study.name)
                site.run(study)
                outcome = {"quality": 0.9, "test_quality": 0.995, **given}
                end(site, study, **outcome)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield names
    finally:
        over.set()
        thread.join()


def trained(client: Client, *rows: RowEntry, seeds: int = 1, name: str = "dizzy") -> list[Cell]:
    found: list[Cell] = []

    def finished(_plan: Plan, cell: Cell) -> None:
        found.append(cell)

    run = Reproduction(client, None, finished)
    run.run(plans(name, rows, seeds=seeds, done=[]))
    assert not run.paused
    return found


def test_each_row_and_seed_is_a_study_and_its_trial_a_cell(site: Site, client: Client) -> None:
    with coordinating(site) as names:
        found = trained(client, FIRST, RIVAL, seeds=2)
    assert [(cell.row, cell.seed) for cell in found] == [
        (row.key, seed) for row in (FIRST, RIVAL) for seed in (0, 1)
    ]
    assert names == [f"dizzy: {c.row}, seed {c.seed}, {c.digest}" for c in found]
    assert {(cell.value, cell.epochs) for cell in found} == {(0.995, 100)}
    assert [cell.updates for cell in found] == [1000, 1000, 1000, 1000]


def test_a_repeated_call_takes_up_what_exists(site: Site, client: Client) -> None:
    with coordinating(site) as names:
        first = trained(client, FIRST)
        again = trained(client, FIRST, seeds=2)
    assert again[0] == first[0]
    assert len(names) == 2


def test_slots_that_join_later_take_more_studies(site: Site, client: Client) -> None:
    """A server that has just begun has none yet."""
    run = Reproduction(client, None, lambda _plan, _cell: None)
    thread = threading.Thread(target=run.run, args=(plans("dizzy", [FIRST], seeds=3, done=[]),))
    thread.start()
    try:
        wait_until(lambda: len(list(client.studies())) == 1, what="the first study")
        time.sleep(2.5)  # Polls later it is still alone.
        assert len(list(client.studies())) == 1
        slot = SlotRecord("cpu-0", "cpu", "a CPU", 1.0, machine="ada")
        lane = SlotRecord("lane cpu", "cpu", "a CPU", 0.0, machine="ada")
        record = CoordinatorRecord(
            owner="a",
            slots=(slot,),
            measuring_slots=(lane,),
            figures={},
            started_at=now(),
            seen_at=now(),
        )
        with site.database.write() as session:
            Coordinators(session).report(record)
        wait_until(lambda: len(list(client.studies())) == 2, what="a second study")
    finally:
        with coordinating(site):
            thread.join()
    assert len(list(client.studies())) == 3


def test_a_training_is_paused_once_it_reaches_what_is_claimed(site: Site, client: Client) -> None:
    """Whatever its last epoch has; the next study begins, and a later call goes on with both."""
    todo = plans("dizzy", [FIRST], seeds=2, done=[])
    cells: list[Cell] = []
    run = Reproduction(client, None, lambda _plan, cell: cells.append(cell), until_decided=True)
    thread = threading.Thread(target=run.run, args=(todo,))
    thread.start()
    for plan in todo:
        wait_until(lambda: len(list(client.studies(state="queued"))) == 1, what=plan.name)
        with site.database.read() as session:
            (study,) = Studies(session).page(limit=50, state=StudyState.QUEUED).items
        site.run(study)
        site.trial(study, 0, state=TrialState.RUNNING)
        for epoch, validation in enumerate((0.5, 0.98), 1):
            site.epoch(study, 0, epoch, validation=validation)
        with site.database.write() as session:
            Trials(session).set_epochs(study.id, 0, 2)
        time.sleep(2.5)  # Polls later it still runs: 0.99 is claimed.
        assert client.study(study.id).state == StudyState.RUNNING
        for epoch, validation in ((3, 0.991), (4, 0.7)):
            site.epoch(study, 0, epoch, validation=validation)
        with site.database.write() as session:
            Trials(session).set_epochs(study.id, 0, 4)
    thread.join()
    assert [(cell.seed, cell.unfinished, cell.best_validation) for cell in cells] == [
        (0, True, 0.991),
        (1, True, 0.991),
    ]
    assert not run.paused, "which are those that a budget paused"
    assert {study.state for study in client.studies()} == {StudyState.PAUSED}
    assert not plans("dizzy", [FIRST], seeds=2, done=cells, until_decided=True)
    assert len(plans("dizzy", [FIRST], seeds=2, done=cells)) == 2


def test_a_paused_study_is_resumed(site: Site, client: Client) -> None:
    (plan,) = plans("dizzy", [FIRST], seeds=1, done=[])
    study = client.submit({**plan.document, "name": plan.name})
    client.pause(study.id)
    states: list[str] = []

    def watch() -> None:
        while client.study(study.id).state == StudyState.PAUSED:
            time.sleep(0.02)
        states.append(client.study(study.id).state)
        with site.database.read() as session:
            record = Studies(session).get(study.id)
        if record.state == StudyState.QUEUED:
            site.run(record)
        end(site, record, test_quality=0.99)

    thread = threading.Thread(target=watch)
    thread.start()
    found = trained(client, FIRST)
    thread.join()
    assert states != [StudyState.PAUSED]
    assert [cell.study for cell in found] == [study.id]


def test_of_equal_qualities_the_validation_loss_decides(site: Site, client: Client) -> None:
    """The loss of the epoch that is kept, whatever later ones have."""
    (plan,) = plans("dizzy", [FIRST], seeds=1, done=[])
    study_id = client.submit({**plan.document, "name": plan.name}).id
    with site.database.read() as session:
        study = Studies(session).get(study_id)
    site.run(study)
    for number, (quality, loss) in enumerate([(0.9, 0.3), (0.9, 0.2), (0.9, None), (0.8, 0.1)]):
        site.trial(study, number, quality=quality, test_quality=number / 10, best_epoch=1)
        site.epoch(study, number, 1, validation_loss=loss)
        site.epoch(study, number, 2, validation_loss=0.01 * number)
    site.finish(study)
    (cell,) = trained(client, FIRST)
    assert cell.value == 0.1


def test_a_search_brings_the_best_network_also_where_nothing_is_claimed(
    site: Site, client: Client
) -> None:
    """Of losses the least, and what it is a loss of."""
    row = row_named(TABLES["addition"].document().entries, f"T=30/{SEARCHED}")
    row = row.model_copy(update={"claim": None})
    (plan,) = plans("addition", [row], seeds=1, done=[])
    study_id = client.submit({**plan.document, "name": plan.name}).id
    with site.database.read() as session:
        study = Studies(session).get(study_id)
    site.run(study)
    for number, quality in enumerate([0.3, 0.1, 0.2]):
        site.trial(study, number, quality=quality, test_quality=quality)
        for epoch in range(1, 11):
            site.epoch(study, number, epoch)
    site.finish(study)
    (cell,) = trained(client, row, name="addition")
    assert cell.value == 0.1
    with site.database.read() as session:
        best = Trials(session).get(study_id, 1)
    assert cell.network == f"{best.architecture} × {best.parametrization}"
    (result,) = results_of(TABLES["addition"].document(), [row], [cell])
    assert f"{cell.parameters:,} of {row.parameters:,}" in result.texts()
    assert (cell.trainings, result.networks) == (1.5, f"{cell.network}, of 1.5 trainings")


def test_a_study_that_somebody_cancelled_is_said_to_have_no_result(
    site: Site, client: Client
) -> None:
    (plan,) = plans("dizzy", [FIRST], seeds=1, done=[])
    study_id = client.submit({**plan.document, "name": plan.name}).id
    with site.database.read() as session:
        study = Studies(session).get(study_id)
    site.run(study)
    site.finish(study, StudyState.CANCELLED)
    run = Reproduction(client, None, lambda _plan, _cell: None)
    run.run([plan])
    assert run.lost == {
        plan.name: f"study {study_id} is cancelled and has no result; delete it to have it "
        "trained anew"
    }


def test_a_training_that_failed_is_a_cell_with_its_reason(site: Site, client: Client) -> None:
    failed = {"state": TrialState.INFEASIBLE, "reason": "the loss is NaN", "test_quality": None}
    with coordinating(site, **failed):
        (cell,) = trained(client, FIRST)
    assert (cell.value, cell.reason) == (None, "the loss is NaN")


def test_missing_data_make_a_row_unreachable_and_the_rest_goes_on(
    site: Site, client: Client
) -> None:
    gun_point = TABLES["ucr"].document().entries[-1]
    run = Reproduction(client, None, lambda _plan, _cell: None)
    with coordinating(site) as names:
        run.run(
            [
                *plans("ucr", [gun_point], seeds=2, done=[]),
                *plans("dizzy", [FIRST], seeds=1, done=[]),
            ]
        )
    assert list(run.refused) == [gun_point.key]
    assert "REFLECTORY_DATA" in run.refused[gun_point.key]
    assert len(names) == 1


def test_nothing_is_submitted_once_the_budget_is_used_up(site: Site, client: Client) -> None:
    run = Reproduction(client, 1.0, lambda _plan, _cell: None, used_seconds=1.0)
    run.run(plans("dizzy", [FIRST], seeds=1, done=[]))
    assert list(client.studies()) == []


def reproduce(client: Client, *words: object) -> Result:
    """The command, in this process: it takes seconds to start one."""
    environment = {"REFLECTORY_SERVER": client.server, "COLUMNS": "200"}
    return CliRunner().invoke(application, ["reproduce", *map(str, words)], env=environment)


def test_the_command_keeps_results_and_writes_the_document_from_them(
    site: Site, client: Client, tmp_path: Path
) -> None:
    results = tmp_path / "reproduction" / "dizzy.jsonl"
    words = ("dizzy", "--rows", FIRST.key, "--seeds", 3, "--results", results, "--watch")
    with coordinating(site) as names:
        answer = reproduce(client, *words, "-o", "csv")
    assert answer.exit_code == 0, answer.stderr
    assert answer.stdout.splitlines()[1].startswith(f"{FIRST.key},>= 0.99,0.995 ± 0,+0.005,")
    assert ",reproduced," in answer.stdout
    assert f"{FIRST.key}, seed 0: 0.995" in answer.stderr
    assert len(results.read_text().splitlines()) == len(names) == 3
    again = reproduce(client, *words, "--json")
    assert json.loads(again.stdout)[0]["verdict"] == "reproduced"
    assert len(results.read_text().splitlines()) == 3
    document = tmp_path / "REPRODUCTION.md"
    (results.parent / "dizzy.md").write_text("The rate is not told.\n")
    written = reproduce(client, "--document", document)
    assert written.exit_code == 0, written.stderr
    assert "### What was found\n\nThe rate is not told.\n" in document.read_text()
    assert f"| {FIRST.key} | >= 0.99 | 0.995 ± 0 |" in document.read_text()


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (("dizy",), ["unknown table 'dizy'; did you mean dizzy"]),
        (("dizzy", "--rows", "figure-9"), ["unknown row 'figure-9'; did you mean figure-"]),
        (("dizzy", "--systems", "lstm"), ["unknown system 'lstm'; did you mean lstm-128-tail"]),
        (("dizzy", "--budget", "2 fortnights"), ["'2 fortnights' is no time", "such as 2h"]),
        (("memory", "--budget", "1s"), ["1 s are less than the cheapest row", "for one seed"]),
        ((), ["name a table, of ucr, addition,"]),
    ],
)
def test_what_is_wrong_is_said_before_anything_starts(
    client: Client, words: tuple[str, ...], sentences: list[str]
) -> None:
    answer = reproduce(client, *words)
    assert answer.exit_code in (2, 3)
    said = " ".join(answer.stderr.replace("│", " ").split())
    for sentence in sentences:
        assert sentence in said
    assert list(client.studies()) == []


def test_what_runs_when_the_budget_is_used_up_is_paused_and_kept(
    site: Site, client: Client
) -> None:
    """How far it has come, that is; another call continues it."""
    (plan,) = plans("dizzy", [FIRST], seeds=1, done=[])
    study_id = client.submit({**plan.document, "name": plan.name}).id
    with site.database.read() as session:
        study = Studies(session).get(study_id)
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    with site.database.write() as session:
        Trials(session).set_epochs(study.id, 0, 7)
    for epoch in range(1, 8):
        site.epoch(study, 0, epoch, validation=epoch / 10)
    site.lease(study, 0)
    found: list[Cell] = []
    run = Reproduction(client, 0.5, lambda _plan, cell: found.append(cell))
    run.run([plan])
    assert run.paused == [plan.name]
    assert run.used_seconds >= 0.5
    with site.database.read() as session:
        assert Studies(session).get(study_id).state == StudyState.PAUSED
    (cell,) = found
    assert (cell.unfinished, cell.value, cell.reason, cell.epochs) == (True, None, None, 7)
    assert (cell.curve[0].validation, cell.curve[-1].validation) == (0.1, 0.7)
    assert [one.name for one in plans("dizzy", [FIRST], seeds=1, done=found)] == [plan.name]


def test_a_budget_that_is_too_small_is_taken_where_that_is_asked_for(
    site: Site, client: Client, tmp_path: Path
) -> None:
    words = ("dizzy", "--rows", FIRST.key, "--seeds", 1, "--budget", "1s")
    refused = reproduce(client, *words)
    assert refused.exit_code == 2
    assert "--unfinished" in refused.stderr
    results = tmp_path / "dizzy.jsonl"
    with coordinating(site):
        answer = reproduce(client, *words, "--unfinished", "--results", results)
    assert answer.exit_code == 0, answer.stderr
    assert len(results.read_text().splitlines()) == 1
