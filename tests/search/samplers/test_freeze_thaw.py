"""The sampler that decides how far each trial trains, on a table of made-up curves."""

from dataclasses import replace

import numpy as np
import pytest

from search.samplers import NO_LIMIT, FreezeThaw, Question, Ranking
from search.samplers.modelling.costs import Regression
from tests.benchmarks.search_efficiency.made_up import made_up
from tests.benchmarks.search_efficiency.pausing import PausingReplay
from tests.benchmarks.search_efficiency.replay import Configuration, Replayed, State, Trial
from tests.benchmarks.search_efficiency.spaces import DIGITS
from tests.benchmarks.search_efficiency.studies import StudySampler
from tests.benchmarks.search_efficiency.table import Table, read

EPOCHS = DIGITS.epochs
STARTUP = 4
SAMPLER = FreezeThaw(startup_trials=STARTUP)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return read(DIGITS, made_up(tmp_path_factory.mktemp("tables")))


class Search:
    """A few trials, as a study has them, and the sampler's word on them."""

    def __init__(self, table: Table, sampler: FreezeThaw = SAMPLER) -> None:
        self.table = table
        self.sampler = sampler
        self.trials: list[Trial] = []

    def add(self, structure: int, epochs: int, state: State, **given: object) -> Trial:
        configuration = Configuration(structure, 1)
        trial = Trial(len(self.trials), configuration, 0, state=state)
        trial.accuracy = self.table.accuracy[structure, 1, 0, :epochs].tolist()
        for name, value in given.items():
            setattr(trial, name, value)
        self.trials.append(trial)
        return trial

    def ranking(self, *, replicates: bool = False, **given: object) -> Ranking:
        known = {"decision": 7, "epochs_left": None, "slots": 1}
        ready = frozenset(trial.number for trial in self.trials)
        question = Question(**{**known, "ready": ready, **given})  # pyright: ignore[reportArgumentType]
        asked = StudySampler(self.table, self.sampler, seed=3, replicates=replicates)
        return asked.rank(self.trials, question)


@pytest.fixture
def search(table: Table) -> Search:
    """Three finished trials, three paused ones and two that wait."""
    found = Search(table)
    for structure in (0, 20, 40):
        found.add(structure, EPOCHS, State.COMPLETE)
    for structure, epochs in ((10, 1), (30, 4), (50, 2)):
        found.add(structure, epochs, State.PAUSED)
    for structure in (5, 60):
        found.add(structure, 0, State.WAITING)
    return found


def test_all_that_waits_and_all_that_is_paused_is_ranked(search: Search) -> None:
    ranking = search.ranking(slots=2)
    assert {choice.trial for choice in ranking.choices} == {3, 4, 5, 6, 7}
    assert not ranking.together
    assert not ranking.over
    index = [choice.index for choice in ranking.choices]
    assert index == sorted(index, reverse=True)
    until = {choice.trial: choice.until for choice in ranking.choices}
    assert until == {3: 2, 4: 8, 5: 4, 6: 1, 7: 1}
    prices = {choice.trial: choice.price for choice in ranking.choices}
    assert prices == {3: 1, 4: 4, 5: 2, 6: 1, 7: 1}
    limits = dict(ranking.choices[0].limits)
    first = until[ranking.choices[0].trial]
    assert list(limits) == [rung for rung in SAMPLER.rungs(EPOCHS) if rung >= first]
    assert all(-NO_LIMIT <= limit <= NO_LIMIT for limit in limits.values())
    assert all(choice.limits == () for choice in ranking.choices[1:])


def test_a_repeat_is_a_choice_where_a_study_replicates_once_the_first_is_complete(
    search: Search,
) -> None:
    of_complete = search.add(20, 0, State.WAITING, repeats=1)
    of_paused = search.add(30, 0, State.WAITING, repeats=4)
    both = {of_complete.number, of_paused.number}
    assert set(search.ranking(slots=9).superseded) == both
    ranking = search.ranking(slots=9, replicates=True)
    assert set(ranking.superseded) == {of_paused.number}
    assert {choice.trial for choice in ranking.choices} == {3, 4, 5, 6, 7, of_complete.number}


def test_it_follows_from_the_past_the_seed_and_the_decision(search: Search) -> None:
    assert search.ranking() == search.ranking()


def test_what_waits_to_be_measured_is_no_choice(search: Search) -> None:
    ranking = search.ranking(ready=frozenset({3, 4, 5}))
    assert {choice.trial for choice in ranking.choices} == {3, 4, 5}


def test_of_more_suggestions_than_slots_the_least_goes(search: Search) -> None:
    both = search.ranking(slots=2)
    assert both.superseded == []
    index = {choice.trial: choice.index for choice in both.choices}
    least = min((6, 7), key=lambda number: index[number])
    ranking = search.ranking(slots=1)
    assert list(ranking.superseded) == [least]
    # It is ranked as it will be without that one.
    search.trials[least].state = State.GONE
    assert replace(ranking, superseded=[]) == search.ranking(slots=1)


def test_a_suggestion_that_repeats_what_was_begun_goes(search: Search) -> None:
    search.add(0, 0, State.WAITING, repeats=0)
    ranking = search.ranking(slots=3)
    assert list(ranking.superseded) == [8]
    assert 8 not in {choice.trial for choice in ranking.choices}


def test_the_first_ones_are_looked_at_and_pause(table: Table) -> None:
    search = Search(table)
    search.add(0, 1, State.PAUSED)
    for structure in (10, 20):
        search.add(structure, 0, State.WAITING)
    ranking = search.ranking(slots=2)
    assert ranking.together
    assert [choice.trial for choice in ranking.choices] == [1, 2]
    assert all(choice.limits == ((1, -NO_LIMIT),) for choice in ranking.choices)


def test_so_many_are_looked_at_at_once_that_one_can_reach_its_end(table: Table) -> None:
    search = Search(table)
    for structure in (10, 20, 30):
        search.add(structure, 0, State.WAITING)
    for left, count in ((EPOCHS - 1, 0), (EPOCHS, 1), (EPOCHS + 1, 2), (2 * EPOCHS, 3)):
        assert len(search.ranking(slots=3, epochs_left=left).choices) == count


def test_only_what_comes_to_its_end_within_the_budget_is_a_choice(search: Search) -> None:
    # Trial 4 has trained 4 epochs, trial 5 two, trial 3 one.
    ranking = search.ranking(epochs_left=EPOCHS - 2)
    assert {choice.trial for choice in ranking.choices} == {4, 5}
    assert not ranking.over
    last = search.ranking(epochs_left=EPOCHS - 4)
    assert {choice.trial for choice in last.choices} == {4}
    over = search.ranking(epochs_left=EPOCHS - 5)
    assert list(over.choices) == []
    assert over.over


def test_a_running_trial_goes_on_only_where_the_budget_has_room_for_it(search: Search) -> None:
    trial = search.trials[5]
    trial.state, trial.stretch = State.RUNNING, {"decision": 6, "from": 2, "until": 4, "limits": []}
    roomy = search.ranking(slots=2, epochs_left=10 * EPOCHS)
    assert max(limit for _, limit in roomy.limits[5]) > -NO_LIMIT
    first = roomy.choices[0]
    reached = len(search.trials[first.trial].accuracy)
    # As much as the first choice takes, and nothing beyond.
    tight = search.ranking(slots=2, epochs_left=EPOCHS - reached)
    assert all(limit == -NO_LIMIT for _, limit in tight.limits[5])


def test_on_one_slot_what_runs_counts_as_it_was_when_it_began(search: Search) -> None:
    trial = search.trials[5]
    trial.state, trial.stretch = State.RUNNING, {"decision": 6, "from": 2, "until": 4, "limits": []}
    before = search.ranking()
    trial.accuracy = search.table.accuracy[50, 1, 0, :9].tolist()
    assert search.ranking() == before
    assert search.ranking(slots=2) != replace(before, superseded=[])


def test_states_for_which_there_is_no_room_are_let_go_the_least_first(table: Table) -> None:
    search = Search(table, FreezeThaw(startup_trials=STARTUP, held_bytes=1))
    for structure in (0, 20, 40):
        search.add(structure, EPOCHS, State.COMPLETE)
    for structure, epochs in ((10, 1), (30, 4), (50, 2), (70, 1)):
        search.add(structure, epochs, State.PAUSED)
    roomy = Search(table)
    roomy.trials = search.trials
    index = {choice.trial: choice.index for choice in roomy.ranking().choices}
    ranking = search.ranking()
    # The best two of each slot stay, whatever room they take.
    least = sorted(index, key=lambda number: index[number])[:2]
    assert set(ranking.let_go) == set(least)
    for number in least:
        epoch = len(search.trials[number].accuracy)
        assert ranking.let_go[number] == f"let go at epoch {epoch} for room"
    nothing = Search(table, FreezeThaw(startup_trials=STARTUP, held_bytes=0))
    nothing.trials = search.trials
    assert set(nothing.ranking().let_go) == {3, 4, 5, 6}


def test_what_others_wait_for_goes_on_to_its_end(search: Search) -> None:
    first = search.ranking(wanted=frozenset({4})).choices[0]
    assert (first.trial, first.until, first.limits) == (4, EPOCHS, ())


def test_by_seconds_a_trial_is_worth_the_less_the_longer_its_epochs_take(search: Search) -> None:
    search.sampler = FreezeThaw(startup_trials=STARTUP, price="seconds")
    by_seconds = {one.trial: one for one in search.ranking(slots=2).choices}
    for number, choice in by_seconds.items():
        structure = search.trials[number].configuration.structure
        if search.trials[number].accuracy:
            epochs = choice.until - len(search.trials[number].accuracy)
            seconds = search.table.epoch_seconds[structure]
            assert choice.price == pytest.approx(epochs * seconds)
    slow = 30
    before = by_seconds[4].index
    search.table = replace(
        search.table,
        epoch_seconds=np.where(np.arange(len(search.table.epoch_seconds)) == slow, 9.0, 0.02),
    )
    after = {one.trial: one.index for one in search.ranking(slots=2).choices}
    assert after[4] < before / 10


def test_while_no_speed_was_measured_all_are_expected_to_be_equal() -> None:
    nothing = Regression([], np.zeros(0))
    assert nothing.at(("rnn dense", 2.0, 3.0)) == nothing.at(("gru low_rank", 5.0, 6.0)) == 0


@pytest.mark.parametrize("workers", [1, 4])
def test_a_whole_search_keeps_to_its_budget_and_can_be_repeated(table: Table, workers: int) -> None:
    def search() -> tuple[PausingReplay, Replayed]:
        made = PausingReplay(table, StudySampler(table, SAMPLER, seed=5), seed=5)
        return made, made.run(workers, 5 * EPOCHS, None, 0)

    made, found = search()
    assert found == search()[1]
    spent = sum(len(trial.accuracy) for trial in made.trials)
    assert spent <= 5 * EPOCHS
    assert found.complete >= 2
    # It looks at more than it finishes.
    assert found.trials > found.complete
    stretches = [trial.stretch for trial in made.trials if trial.stretch is not None]
    decisions = [stretch["decision"] for stretch in stretches]
    assert len(set(decisions)) == len(decisions)
    begun = [trial.configuration for trial in made.trials if trial.accuracy]
    assert len(set(begun)) == len(begun)


@pytest.mark.parametrize(("trials", "workers"), [(1, 1), (1, 4), (2, EPOCHS + 3), (3, 8)])
def test_a_budget_is_spent_however_small_it_is_for_the_slots(
    table: Table, trials: int, workers: int
) -> None:
    made = PausingReplay(table, StudySampler(table, FreezeThaw(), seed=5), seed=5)
    found = made.run(workers, trials * EPOCHS, None, 0)
    assert found.complete >= 1
    left = trials * EPOCHS - sum(len(trial.accuracy) for trial in made.trials)
    paused = [trial for trial in made.trials if trial.state is State.PAUSED]
    assert all(EPOCHS - len(trial.accuracy) > left for trial in paused)


def test_the_start_is_over_where_all_that_waits_repeats_what_was_begun(table: Table) -> None:
    search = Search(table)
    first = search.add(0, 1, State.RUNNING)
    search.add(0, 0, State.WAITING, repeats=0)
    waiting = search.ranking(slots=2)
    assert (waiting.choices, waiting.superseded, waiting.over) == ([], [], False)
    first.state = State.PAUSED
    ranking = search.ranking()
    assert ranking.superseded == [1]
    assert [choice.trial for choice in ranking.choices] == [0]
    first.state = State.DIVERGED
    assert search.ranking().superseded == [1]
    search.add(10, 0, State.WAITING)
    ranking = search.ranking()
    assert [choice.trial for choice in ranking.choices] == [2]
