"""Values of options: numbers with the units that people use."""

import pytest
import typer

from service.commands.given.quantities import document_or_name, limits_of, numbers_of, pairs_of


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("bytes=300KB", "bytes", 300_000),
        ("bytes=300kB", "bytes", 300_000),
        ("bytes=1.5MB", "bytes", 1_500_000),
        ("bytes=2KiB", "bytes", 2_048),
        ("bytes=4000", "bytes", 4_000),
        ("agreement=0.99", "agreement", 0.99),
        ("agreement=99%", "agreement", 0.99),
        ("latency=2ms", "latency_seconds", 0.002),
        ("latency=250us", "latency_seconds", 0.00025),
        ("latency=0.5s", "latency_seconds", 0.5),
        ("latency_seconds=0.5", "latency_seconds", 0.5),
        ("parameters=20000", "parameters", 20_000),
        ("unheard=3", "unheard", 3),
    ],
)
def test_limits_have_units(text: str, name: str, value: float) -> None:
    found = limits_of([text])
    assert found == {name: pytest.approx(value)}
    # Counts are whole numbers in a document, and `20000.0` is none.
    assert isinstance(found[name], int) == float(value).is_integer()


@pytest.mark.parametrize(
    "text", ["bytes", "bytes=", "bytes=3XB", "latency=2h", "parameters=20KB", "agreement=x%"]
)
def test_what_is_no_number_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=rf"{text!r}.*bytes=300KB"):
        limits_of([text])


def test_inputs_have_numbers_or_rows_of_them() -> None:
    given = ["sr=16000", "x=[[0.5, 1], [2, 3]]"]
    found = numbers_of(given, option="--fixed", example="sr=16000")
    assert found == {"sr": 16_000, "x": [[0.5, 1], [2, 3]]}
    with pytest.raises(typer.BadParameter, match="sr=fast has no number") as refused:
        numbers_of(["sr=fast"], option="--fixed", example="sr=16000")
    assert refused.value.param_hint == "--fixed"


@pytest.mark.parametrize(
    ("given", "why"),
    [(["frames"], "is no NAME=VALUE"), (["=a"], "is no NAME=VALUE"), (["x=a", "x=b"], "twice")],
)
def test_pairs_have_a_name_of_their_own(given: list[str], why: str) -> None:
    with pytest.raises(typer.BadParameter, match=why):
        pairs_of(given, option="--input", example="input=frames")


def test_a_name_stands_for_a_document() -> None:
    assert document_or_name("kl", option="--metric") == {"kind": "kl"}
    whole = document_or_name('{"kind": "kl", "logits": true}', option="--metric")
    assert whole == {"kind": "kl", "logits": True}
    with pytest.raises(typer.BadParameter, match="is no JSON"):
        document_or_name("{kl", option="--metric")
