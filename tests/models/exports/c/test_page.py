"""The page about C files shows what works."""

import re
from pathlib import Path

import pytest

from models.checkpoint import save
from models.exports.c.export import export
from models.exports.c.toolchain import STRICT, compiler, run, write
from models.interface import Classes, Interface
from tests.c_check.__main__ import FORMS
from tests.models.exports.c.test_export import spec_of

PAGE = (Path(__file__).parents[4] / "deploy/docs/reference/c-files.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return found


def test_its_python_writes_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of({"kind": "gru"})
    save(tmp_path / "trial-18.safetensors", spec.build(seed=0), spec)
    monkeypatch.chdir(tmp_path)
    exec(block("python"), {})
    assert "digits_answer" in (tmp_path / "digits.h").read_text()


def test_its_c_compiles_and_answers(tmp_path: Path) -> None:
    spec = spec_of({"kind": "gru"}, output_size=2)
    interface = Interface(sample=("steps", 3), answer=Classes(classes=("one", "two")))
    write(export(spec.build(seed=0), spec, name="digits", interface=interface), tmp_path)
    include, declared, called = re.split(r"\n\n", block("c").strip(), maxsplit=2)
    declared = declared.replace("float answer", "static float answer")
    program = f"""#include <stdio.h>
{include}
{declared}
int main(void)
{{
    static const float row[3] = {{1.0f, 2.0f, 3.0f}}, rows[9] = {{0.5f}};
    const int steps = 3;
{called}
    return 0;
}}
"""
    (tmp_path / "main.c").write_text(program)
    run([compiler(), *STRICT, "digits.c", "main.c", "-o", "it"], tmp_path)
    assert run([str(tmp_path / "it")], tmp_path).decode().strip() in ("one", "two")


def test_its_table_has_every_form() -> None:
    sizes = PAGE.partition("## Speed")[0]
    for form in FORMS:
        assert sizes.count(f"| {form} |") == 3
