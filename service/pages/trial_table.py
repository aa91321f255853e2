"""The rows of a study's table: filtered, sorted and cut into pages."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy.orm import Session

from search.documents.region import Region
from service.api.trials.documents import trial_document
from service.figures.numbers import MOST_NAMED, write_numbers
from service.rendering.study_view import MOST_ROWS, PAGE_ROWS, Choice, TrialTable
from service.rendering.trials.filters import Fields, FilterRefused, matching, ordered
from storage.records import StudyRecord
from storage.repositories.trial_summaries import ShownTrial
from storage.repositories.trials import Trials

_MOST_COLUMNS: Final = 12
"""How many hyperparameters have a column where a reader chooses none."""


def trial_table(
    session: Session,
    study: StudyRecord,
    trials: Sequence[ShownTrial],
    choice: Choice,
    *,
    metric: str,
    on_front: frozenset[int],
) -> TrialTable:
    """The part of the trials that a reader asks for; a filter that is wrong leaves them all."""
    fields = Fields.of(trials, metric=metric, on_front=on_front)
    found, fault = list(trials), None
    try:
        fits = matching(choice.where, fields)
        read = fields.reader(choice.sort)
        found = ordered(
            [trial for trial in trials if fits(trial)], read, descending=choice.order == "down"
        )
    except FilterRefused as error:
        fault = str(error)
    if choice.state is not None:
        found = [trial for trial in found if trial.state is choice.state]
    if choice.only:
        found = [trial for trial in found if trial.number in choice.selected]
    size = MOST_ROWS if len(found) <= MOST_ROWS else PAGE_ROWS
    start = (choice.page - 1) * size
    numbers = [trial.number for trial in found]
    # What is shown is read again: how far trials have trained changes without a version.
    rows = {row.number: row for row in Trials(session).numbered(study.id, numbers[start:][:size])}
    region = Region.of_document(study.spec)
    varied = _varied(trials)
    chosen = [name for name in choice.columns if name in fields.hyperparameters]
    return TrialTable(
        trials=[
            trial_document(rows[number], (), region)
            for number in numbers[start:][:size]
            if number in rows
        ],
        total=len(trials),
        matching=len(found),
        numbers=write_numbers(sorted(numbers)[:MOST_NAMED]),
        columns=chosen or varied[:_MOST_COLUMNS],
        all_columns=sorted(fields.hyperparameters),
        varied=frozenset(varied),
        fault=fault,
        pages=max(1, -(-len(found) // size)),
    )


def _varied(trials: Sequence[ShownTrial]) -> list[str]:
    """The hyperparameters that are not the same everywhere, those of most trials first."""
    values: dict[str, set[str]] = {}
    counts: dict[str, int] = {}
    for trial in trials:
        for name, value in trial.hyperparameters.items():
            counts[name] = counts.get(name, 0) + 1
            if len(seen := values.setdefault(name, set())) < 2:
                seen.add(repr(value))
    varied = [name for name, seen in values.items() if len(seen) > 1]
    return sorted(varied, key=lambda name: (-counts[name], name))
