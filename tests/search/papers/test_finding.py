from collections.abc import Sequence

import pytest

from search.errors import UnknownName
from search.papers import TABLES, rows_named, table_named

UCR = TABLES["ucr"].document().entries


def keys(rows: Sequence[str] = (), systems: Sequence[str] = ()) -> list[str]:
    return [entry.key for entry in rows_named(UCR, rows=rows, systems=systems)]


def test_rows_are_named_by_key_by_group_or_by_system() -> None:
    assert len(keys()) == 84
    assert keys(rows=["GunPoint"]) == [
        f"GunPoint/{name}" for name in ("rnn-32", "lstm-32", "ornn-32-16", "svd-rnn-32-16")
    ]
    assert keys(rows=["Coffee/lstm-32"]) == ["Coffee/lstm-32"]
    assert keys(rows=["GunPoint", "Coffee"], systems=["rnn-32"]) == [
        "Coffee/rnn-32",
        "GunPoint/rnn-32",
    ]


@pytest.mark.parametrize(
    ("named", "sentence"),
    [
        ({"rows": ["Gunpoint"]}, "unknown row 'Gunpoint'; did you mean GunPoint"),
        ({"systems": ["svd-rnn"]}, "unknown system 'svd-rnn'; did you mean svd-rnn-32-16"),
        ({"rows": ["zzz"]}, "unknown row 'zzz'; allowed are "),
    ],
)
def test_an_unknown_name_is_refused_with_those_that_are_near(named: dict, sentence: str) -> None:
    with pytest.raises(UnknownName, match=sentence):
        keys(**named)


def test_an_unknown_table_is_refused_with_all_there_are() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown table 'uc'; did you mean ucr.* allowed are ucr,"
    ):
        table_named("uc")
