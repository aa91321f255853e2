"""The papers' tables: their rows have the counts that they say, and can be studied."""

import json
from collections.abc import Mapping

import pytest

from search.papers import PRESETS, TABLES, Row
from search.spaces import CornerSource, SearchSpace
from search.studies.spec import StudySpec
from search.tasks import AnyTask, Language, Multilabel, Ucr
from search.tasks.multilabel.multilabel import MultilabelFacts
from search.tasks.text.texts import TextFacts

ROWS = [(table.name, row) for table in TABLES.values() for row in table.rows]
IDS = [f"{name}-{row.key}" for name, row in ROWS]
NAMES = [
    "ucr",
    "addition",
    "copy",
    "memory",
    "pixel-mnist",
    "permuted-mnist",
    "sequences",
    "depth",
    "multilabel",
    "ptb-words",
    "ptb-characters",
    "highway",
    "dizzy",
]


def with_facts(task: AnyTask, row: Row) -> AnyTask:
    """The task as it is where its files are, by the sizes that the row says."""
    signature = row.model.signature
    if isinstance(task, Ucr):
        facts = Ucr.example().facts
        assert facts is not None
        sizes = {
            "steps": signature.sequence_length,
            "shortest": signature.sequence_length,
            "features": signature.input_size,
            "outputs": signature.output_size,
        }
        return task.model_copy(update={"facts": facts.model_copy(update=sizes)})
    if isinstance(task, Language):
        vocabulary = signature.vocabulary or signature.output_size
        sizes = {"train": 929_589, "validation": 73_760, "test": 82_430}
        text = TextFacts(vocabulary=vocabulary, tokens=sizes, lines=sizes, sha256={})
        return task.model_copy(update={"facts": text})
    if isinstance(task, Multilabel):
        known = MultilabelFacts(
            samples={"train": 80, "validation": 20, "test": 10},
            features=signature.input_size,
            labels=signature.output_size,
            label_counts=(1,) * signature.output_size,
            sha256=(),
        )
        return task.model_copy(update={"facts": known})
    return task


def test_every_table_of_the_papers_is_there() -> None:
    assert list(TABLES) == NAMES
    assert len(TABLES["ucr"].rows) == 84
    assert len(TABLES["ptb-characters"].rows) == 13
    assert len(TABLES["permuted-mnist"].rows) == 6


@pytest.mark.parametrize(("table", "row"), ROWS, ids=IDS)
def test_a_row_has_the_parameters_that_it_says(table: str, row: Row) -> None:
    model = row.model
    assert model.parameter_count() == row.parameters
    built = model.build_on_meta()
    assert sum(p.numel() for p in built.parameters()) == row.parameters


def test_the_printed_counts_of_the_ucr_table_are_all_exact() -> None:
    for row in TABLES["ucr"].rows:
        assert row.printed_parameters == row.model.parameter_count(), row.key


def test_counts_that_a_paper_prints_in_full_come_out_in_its_own_way_of_counting() -> None:
    """All that are printed as numbers, unless the row says that one is a misprint."""
    compared = 0
    for name, row in ROWS:
        if isinstance(row.printed_parameters, int) and row.erratum is None:
            ways = (row.model.parameter_count(), row.model.paper_count())
            assert row.printed_parameters in ways, f"{name}: {row.key}"
            compared += 1
    assert compared >= 90


@pytest.mark.parametrize(("table", "row"), ROWS, ids=IDS)
def test_a_rows_study_trains_the_row_and_nothing_else(table: str, row: Row) -> None:
    document = json.loads(json.dumps(row.document(table, seed=3)))
    sent = StudySpec.model_validate(document)
    assert sent.trained_task.model_copy(update={"facts": None}).kind == row.task.kind
    spec = sent.model_copy(update={"task": with_facts(sent.trained_task, row)})
    space = SearchSpace(spec)
    assert space.dimensions == {}
    drawn = space.draw(CornerSource(highest=True)).spec
    assert drawn.model.architecture == row.system.architecture
    assert drawn.model.parametrization == row.system.parametrization
    assert drawn.training == row.training
    assert drawn.seed == 3
    assert drawn.model.parameter_count() == row.parameters
    assert (spec.budget.trials, spec.budget.epochs) == (1, row.recipe.epochs)


def moved(task: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in task.items() if "seed" in name}


def test_a_seed_moves_what_is_set_aside_and_what_is_generated() -> None:
    ucr, addition = TABLES["ucr"].rows[0], TABLES["addition"].rows[0]
    assert moved(ucr.document("ucr", seed=2)["task"]) == {"split_seed": 2}
    assert moved(addition.document("addition", seed=2)["task"]) == {"seed": 2}


def test_keys_and_systems_are_distinct() -> None:
    for table in TABLES.values():
        keys = [row.key for row in table.rows]
        assert len(set(keys)) == len(keys)
        assert not [key for key in keys if "," in key], "--rows separates keys by commas"
    systems = {}
    for _, row in ROWS:
        known = systems.setdefault(row.system.name, row.system)
        assert known == row.system, row.key


def test_a_preset_is_at_home_in_one_row() -> None:
    homes = [row.system.name for _, row in ROWS if row.preset]
    assert len(set(homes)) == len(homes)
    assert list(PRESETS) == homes
    assert PRESETS["gru-128"].rows == ("permuted-mnist: gru-128",)
    assert len(PRESETS["rnn-32"].rows) == 21
    assert all(preset.rows for preset in PRESETS.values())


def test_a_row_without_a_claim_says_why_it_is_not_judged() -> None:
    for name, row in ROWS:
        assert row.claim is not None or row.unreachable, f"{name}: {row.key}"


def test_what_cannot_be_reproduced_is_what_the_papers_misprint_or_nobody_has() -> None:
    unreachable = {row.group for row in TABLES["ucr"].rows if row.unreachable}
    assert unreachable == {"ECG200", "Lightning2"}
    assert all(row.unreachable for row in TABLES["multilabel"].rows if "mediamill" in row.key)
