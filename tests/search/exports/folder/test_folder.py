"""The folder of a trial: what is in it, what it says, and examples that run elsewhere."""

import ast
import hashlib
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from models.errors import ExportError
from search.exports.folder import example_of
from search.exports.folder.intervals import interval, wilson
from search.tasks import RawSamples
from tests.search.exports.folder.made import CASES, QUOTED, SYMBOLS, folder, written

every_case = pytest.mark.parametrize("name", list(CASES))


def run(place: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A program in a directory of its own, which finds nothing of this project."""
    return subprocess.run(
        words, cwd=place, capture_output=True, text=True, timeout=300, check=False, env={}
    )


def document(place: Path, name: str) -> Any:
    return json.loads((place / name).read_text(encoding="utf-8"))


@every_case
def test_the_python_example_runs_as_it_is(name: str, tmp_path: Path) -> None:
    place = written(folder(CASES[name]), tmp_path / "folder")
    ran = run(place, sys.executable, "-I", "example.py")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.count(", as in samples.json") == 3
    assert "NOT" not in ran.stdout


STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
@pytest.mark.parametrize("name", [name for name in CASES if "model.c" in folder(CASES[name]).files])
def test_the_c_example_compiles_without_a_warning_and_runs(name: str, tmp_path: Path) -> None:
    place = written(folder(CASES[name]), tmp_path / "folder")
    compiler = shutil.which("cc")
    assert compiler is not None
    built = compiled(place, compiler)
    assert built.returncode == 0, built.stderr
    ran = run(place, "./example")
    assert ran.returncode == 0, ran.stdout
    assert ran.stdout.count(", as in samples.json") == 3
    source = (place / "example.c").read_text()
    first = document(place, "samples.json")["samples"][0]["tolerance"]
    wrong = source.replace(f"{first}f}}", "-1.0f}", 1)
    assert wrong != source
    (place / "example.c").write_text(wrong)
    assert compiled(place, compiler).returncode == 0
    ran = run(place, "./example")
    assert ran.returncode == 1
    assert "NOT as in samples.json" in ran.stdout


def compiled(place: Path, compiler: str) -> subprocess.CompletedProcess[str]:
    words = (compiler, *STRICT, "example.c", "model.c", "-o", "example")
    return subprocess.run(
        words,
        cwd=place,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@every_case
def test_an_answer_that_differs_is_a_failure(name: str, tmp_path: Path) -> None:
    place = written(folder(CASES[name]), tmp_path / "folder")
    samples = document(place, "samples.json")
    one = samples["samples"][1]
    one["answer"][0] += 3 * one["tolerance"]
    (place / "samples.json").write_text(json.dumps(samples))
    ran = run(place, sys.executable, "-I", "example.py")
    assert ran.returncode == 1
    assert ran.stdout.count("NOT as in samples.json") == 1


def test_a_label_that_differs_is_a_failure(tmp_path: Path) -> None:
    place = written(folder(CASES["labels"]), tmp_path / "folder")
    samples = document(place, "samples.json")
    samples["samples"][0]["label"][2] ^= 1
    (place / "samples.json").write_text(json.dumps(samples))
    assert run(place, sys.executable, "-I", "example.py").returncode == 1


def test_the_example_needs_numpy_and_onnxruntime_alone() -> None:
    content = folder(CASES["pixels"]).files["example.py"].content
    assert content is not None
    imported = {
        name
        for node in ast.walk(ast.parse(content))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported == {"json", "sys", "pathlib", "typing", "numpy", "onnxruntime"}


def test_names_of_any_letters_are_printed_and_stand_in_the_files(tmp_path: Path) -> None:
    place = written(folder(CASES["padded"]), tmp_path / "folder")
    assert document(place, "labels.json") == {"answer": "classes", "names": list(QUOTED)}
    decided = {one["label"] for one in document(place, "samples.json")["samples"]}
    ran = run(place, sys.executable, "-I", "-X", "utf8", "example.py")
    for label in decided:
        assert repr(QUOTED[label]) in ran.stdout
    card = (place / "MODEL_CARD.md").read_text(encoding="utf-8")
    assert "größer, über" in card
    # No name ends a line, a table or a piece of code.
    assert "\\| bar" in card
    assert "'code'" in card


def test_missing_numbers_are_null_and_padding_is_left_out(tmp_path: Path) -> None:
    place = written(folder(CASES["padded"]), tmp_path / "folder")
    samples = document(place, "samples.json")["samples"]
    lengths = CASES["padded"].samples.lengths
    assert lengths is not None
    assert [len(one["sample"]) for one in samples] == [one["steps"] for one in samples]
    assert {one["steps"] for one in samples} <= set(lengths.tolist())
    assert samples[0]["sample"][1][0] is None


def test_texts_are_encoded_and_decoded(tmp_path: Path) -> None:
    place = written(folder(CASES["tokens"]), tmp_path / "folder")
    assert document(place, "vocabulary.json")["symbols"] == list(SYMBOLS)
    script = (
        "import runpy; e = runpy.run_path('example.py'); "
        "assert e['encode']('ü e\\n?') == [3, 1, 0, 4, 5]; "
        "assert e['decode']([3, 1, 0, 4]) == 'ü e\\n'"
    )
    ran = run(place, sys.executable, "-I", "-X", "utf8", "-c", script)
    assert ran.returncode == 0, ran.stderr


def test_words_are_encoded_and_decoded(tmp_path: Path) -> None:
    place = written(folder(CASES["tokens"]), tmp_path / "folder")
    words = {"level": "word", "symbols": ["the", "<eos>", "cat"], "unknown": None}
    (place / "vocabulary.json").write_text(json.dumps(words))
    script = (
        "import runpy; e = runpy.run_path('example.py'); "
        "assert e['encode']('the  cat\\n') == [0, 2, 1]; "
        "assert e['decode']([0, 2]) == 'the cat'\n"
        "try: e['encode']('dog')\n"
        "except ValueError as error: assert 'dog' in str(error)\n"
        "else: raise SystemExit(5)"
    )
    ran = run(place, sys.executable, "-I", "-c", script)
    assert ran.returncode == 0, ran.stderr


@every_case
def test_equal_facts_give_equal_folders(name: str) -> None:
    first, second = folder(CASES[name]), folder(CASES[name])
    assert first.files == second.files
    assert first.digest == second.digest
    assert first.digest != folder(CASES[name], without=("onnx",)).digest


def test_a_folder_names_the_digests_of_its_files(tmp_path: Path) -> None:
    place = written(folder(CASES["pixels"]), tmp_path / "folder")
    verified = document(place, "VERIFIED.json")
    files = {path.name for path in place.iterdir()}
    assert set(verified["files"]) == files - {"VERIFIED.json"}
    for name, told in verified["files"].items():
        content = (place / name).read_bytes()
        assert told == {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def card(name: str, *, without: tuple[str, ...] = ()) -> str:
    content = folder(CASES[name], without=without).files["MODEL_CARD.md"].content
    assert content is not None
    return content.decode()


def rows(text: str, heading: str) -> list[list[str]]:
    """The cells of a section's table, its heading first."""
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [line.strip("| ").split(" | ") for line in (lines[0], *lines[2:])]


def test_the_card_says_what_a_stranger_asks() -> None:
    text = card("padded")
    assert text.startswith("# a study \\| of 'mine' and yours, trial 7\n")
    assert "1. a missing number, NaN, is replaced by its feature's value here: 1000000, " in text
    assert "`lengths` `[batch]`, int64" in text
    assert "batch size 64" in text
    assert "- `dense.safetensors`: " in text
    assert "python example.py" in text
    assert "it then takes what the dense network takes" in text
    assert "From a step to the next it keeps 24 bytes of state" in text


def test_the_card_has_an_interval_for_each_split() -> None:
    low, high = wilson(0.9, 400)
    interval_of = f"{100 * low:.2f} % to {100 * high:.2f} %"
    assert rows(card("padded"), "How good it is")[1] == [
        "validation",
        "400",
        "90.00 %",
        interval_of,
    ]
    for name in ("regression", "labels", "forecasting"):
        _, validation, test = rows(card(name), "How good it is")
        assert all(" to " in row[-1] for row in (validation, test))
    assert rows(card("tokens"), "How good it is")[1][-1] == "–"


def test_the_card_tells_what_was_compared_in_each_runtime() -> None:
    table = rows(card("padded"), "What was checked")
    assert table[1:] == [
        [
            "`model.onnx`",
            "onnxruntime 1.32.0",
            "1,400 validation samples, in pieces of 1 and 7 steps",
            "1,399 of 1,400, 1 by ties",
            "90.00 %",
            "90.00 %",
            "3.7e-06 (0.44 % of the bound)",
        ]
    ]


def test_the_card_has_the_speed_in_each_runtime() -> None:
    _, first, second = rows(card("padded"), "How fast it is")
    assert first == [
        "onnxruntime 1.32.0",
        "a CPU",
        "392,100 (390,000 to 395,000)",
        "1.25 (1.2 to 1.3)",
        "12.1 µs",
        "28.4 µs",
    ]
    assert second[0] == "c gcc 14"


@every_case
def test_the_card_tells_every_input_step(name: str) -> None:
    """In plain numbers: none with an exponent."""
    text = card(name)
    for place in range(1, len(CASES[name].interface.inputs) + 1):
        assert f"\n{place}. " in text
    told = text.replace("3.7e-06", "")
    assert not re.search(r"\d[eE][+-]\d", told)


def test_what_is_missing_is_named_with_its_reason() -> None:
    made = folder(CASES["pixels"], without=("onnx", "example"))
    assert made.missing["model.onnx"] == "it is not wanted here"
    assert made.missing["samples.json"] == "it is not wanted here"
    assert made.missing["example.py"] == "it needs `model.onnx`, which is not there"
    assert not {"model.onnx", "samples.json", "example.py", "labels.json"} & set(made.files)
    content = made.files["MODEL_CARD.md"].content
    assert content is not None
    for name, reason in made.missing.items():
        assert f"- `{name}`: {reason}" in content.decode()


def test_intervals_are_those_of_the_literature() -> None:
    # Brown, Cai, DasGupta (2001): Wilson's interval of 0 of 10 is 0 to 0.2775.
    assert wilson(0.0, 10) == pytest.approx((0.0, 0.27753), abs=1e-4)
    assert wilson(0.5, 100) == pytest.approx((0.40383, 0.59617), abs=1e-4)
    assert interval("accuracy", None, 10, None) is None
    assert interval("perplexity", 3.0, 10, None) is None


def test_a_mean_errors_interval_follows_from_the_spread_of_samples() -> None:
    case = CASES["regression"]
    network = case.spec.build(seed=1)
    example = example_of(network, case.spec, case.interface, case.samples)
    with torch.no_grad():
        found = case.interface.answer.numbers(
            network.eval()(case.interface.preprocess(case.samples.x))
        )
    errors = (found - case.samples.y).square().mean(dim=1)
    assert example.mean_error is not None
    assert example.mean_error.deviation == pytest.approx(float(errors.std()), rel=1e-3)
    found_interval = interval("mse", 2.0, 400, example.mean_error)
    assert found_interval is not None
    assert found_interval[1] - 2.0 == pytest.approx(1.96 * float(errors.std()) / 20, rel=1e-3)


def test_a_model_that_decides_nothing_has_examples_all_the_same() -> None:
    case = CASES["pixels"]
    network = case.spec.build(seed=1)
    x = torch.cat([torch.zeros(1, 16), case.samples.x])
    with torch.no_grad():
        # A readout of zeros ties all classes of every sample but for its own bias.
        for name, parameter in network.named_parameters():
            if name.startswith("readout"):
                parameter.zero_()
    tied = example_of(network, case.spec, case.interface, RawSamples(x, torch.zeros(9).long()))
    assert [one.steps for one in tied.samples] == [4, 4, 4]
    with pytest.raises(ExportError, match="no raw sample"):
        example_of(network, case.spec, case.interface, case.samples.between(0, 0))
