"""Studies of MNIST's 60,000 images, in which nothing may be chosen."""

from typing import Any

import pytest

from search.errors import SpecRefused
from search.studies.spec import StudySpec
from search.studies.submission import checked_space

ALONE = {
    "space": {"hidden_size": 16, "learning_rate": 0.01, "batch_size": 64},
    "sampler": {"kind": "random"},
}
NAMED = {
    "presets": ["irnn-128", "lstm-128"],
    "budget": {"trials": 2},
    "sampler": {"kind": "random"},
}


def study(split: str, **fields: Any) -> StudySpec:
    return StudySpec.model_validate(
        {
            "task": {"kind": "mnist", "split": split},
            "architectures": ["rnn"],
            "parametrizations": ["dense"],
            **fields,
        }
    )


@pytest.mark.parametrize("fields", [ALONE, NAMED], ids=["pinned", "presets"])
def test_a_study_whose_trials_are_all_named_is_taken(fields: dict[str, Any]) -> None:
    checked_space(study("60k", **fields))


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"space": {"batch_size": 64}}, "task.split", "searches rnn.hidden_size, training"),
        ({**NAMED, "budget": {"trials": 3}, "space": {}}, "task.split", "allowed is '50k'"),
        ({"sampler": {"kind": "freeze_thaw"}}, "sampler", "'freeze_thaw' pauses trials"),
        ({"confirm": 2}, "confirm", "2 seeds are for the best"),
        ({"early_stopping": {"kind": "mo_asha"}}, "early_stopping", "'mo_asha' ends trials"),
        (
            {"space": {**ALONE["space"], "training.patience": 3}},
            "space",
            "plateau and patience go by validation",
        ),
    ],
)
def test_what_would_choose_is_refused(changes: dict[str, Any], path: str, words: str) -> None:
    fields = {**ALONE, **changes}
    checked_space(study("50k", **fields))
    with pytest.raises(SpecRefused) as refused:
        checked_space(study("60k", **fields))
    [fault] = refused.value.faults
    assert (fault.path, words in fault.message) == (path, True)
